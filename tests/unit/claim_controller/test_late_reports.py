"""Reports of many pods: those that come to their turn late, how many there are, what is kept."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.virtual_time import LoopClock, run_virtually

from dray.api.names import DRAY_SCHEDULER, GPUPOOL, SHAPE
from dray.bus.memory import MemoryBus
from dray.kube.memory import MemoryKube
from dray.kube.ports import BIND_REQUESTS, EVENTS, PODS, Object
from dray.messages.decisions import PodDecision, Waiting
from dray.reasons import Reason
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.decisions.executions import Execution
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.informers import Informers
from dray_claim_controller.report.queue import MOST_REPEATS, REPEATS_PER_S
from dray_claim_controller.report.reporter import Reporter

CROWD = 100
"""Pods whose repeated reports take many seconds."""


class Reports:
    """A reporter, and the cluster that it writes to."""

    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self.kube = MemoryKube()
        informers = Informers(self.kube, ObjectCache())
        self.cache = informers.cache
        self.reporter = Reporter(
            self.kube,
            MemoryBus(),
            informers,
            clock,
            ExecutionWrites(self.kube, lambda: 10.0),
            instance="test",
        )
        self.loops = [informers.run(), self.reporter.run()]

    async def pod(self, name: str) -> Object:
        """A pod that asks for a GPU."""
        annotations = {GPUPOOL: "pool", SHAPE: "{}"}
        spec = {
            "schedulerName": DRAY_SCHEDULER,
            "containers": [{"name": "main"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "shape"}],
        }
        obj = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
        return await self.kube.create(PODS, obj, "ns")

    def waits(self, pod: Object, what: str) -> None:
        """The allocator tells why the pod waits."""
        metadata = pod["metadata"]
        self.reporter.waiting(
            Waiting(
                domain="pool",
                epoch=1,
                writer="test",
                facts_sequence=1,
                now_unix_s=self.clock.now_unix_s(),
                pod_uid=metadata["uid"],
                namespace="ns",
                name=metadata["name"],
                reasons=(Reason("capacity", what, 1, 1, "device"),),
            )
        )

    def decided(self, pod: Object) -> None:
        """The allocator has decided about the pod."""
        metadata = pod["metadata"]
        decision = PodDecision(
            pod_uid=metadata["uid"],
            namespace="ns",
            name=metadata["name"],
            node="node-1",
            binder="dray",
            claims=(),
        )
        self.reporter.decided(Execution("pool", decision))

    async def crowd(self) -> Object:
        """Many pods wait, all of them for other reasons than before; the last of them."""
        pods = [await self.pod(f"pod-{number}") for number in range(CROWD)]
        await self.clock.sleep(1)
        for what in ("before", "now"):
            for pod in pods:
                self.waits(pod, what)
            await self.clock.sleep(5 if what == "before" else 0)
        return pods[-1]

    async def all_written(self) -> None:
        """Wait until nothing is left to write."""
        await self.clock.sleep(CROWD)
        assert not self.reporter.backlog

    def bind_request(self, pod: Object) -> Object | None:
        """The BindRequest of the pod's name."""
        return self.kube.store.of(BIND_REQUESTS).get(("ns", pod["metadata"]["name"]))

    def reported(self, pod: Object) -> list[str]:
        """The messages of events about the pod."""
        return [
            event["message"]
            for event in self.kube.store.of(EVENTS).values()
            if event["involvedObject"]["uid"] == pod["metadata"]["uid"]
        ]


def scenario(of: Callable[[Reports], Awaitable[None]]) -> None:
    async def run(clock: LoopClock) -> None:
        reports = Reports(clock)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in reports.loops]
            await of(reports)
            for task in tasks:
                task.cancel()

    run_virtually(run)


def test_a_report_about_a_pod_that_is_gone_spares_the_bindrequest_of_its_namesake() -> None:
    async def of(reports: Reports) -> None:
        old = await reports.crowd()
        await reports.kube.delete(PODS, old["metadata"]["name"], "ns", grace_period_s=0)
        new = await reports.pod(old["metadata"]["name"])
        await reports.clock.sleep(1)
        reports.waits(new, "its own")
        await reports.all_written()
        found = reports.bind_request(new)
        assert found is not None
        assert found["spec"]["podUID"] == new["metadata"]["uid"]
        assert "its own" in found["status"]["explanation"]

    scenario(of)


def test_a_pod_that_was_decided_meanwhile_is_not_reported_as_waiting() -> None:
    async def of(reports: Reports) -> None:
        pod = await reports.crowd()
        reports.decided(pod)
        await reports.all_written()
        assert not [message for message in reports.reported(pod) if "now" in message]
        found = reports.bind_request(pod)
        assert found is not None
        assert found["status"]["phase"] == "Binding"

    scenario(of)


def test_a_pod_that_another_scheduler_bound_meanwhile_is_not_reported_as_waiting() -> None:
    async def of(reports: Reports) -> None:
        pod = await reports.crowd()
        metadata = pod["metadata"]
        await reports.kube.bind(metadata["name"], "ns", uid=metadata["uid"], node="node-1")
        await reports.all_written()
        assert not [message for message in reports.reported(pod) if "now" in message]

    scenario(of)


def test_what_still_waits_is_reported_at_last() -> None:
    async def of(reports: Reports) -> None:
        pod = await reports.crowd()
        await reports.all_written()
        assert [message for message in reports.reported(pod) if "now" in message]
        found = reports.bind_request(pod)
        assert found is not None
        assert "now" in found["status"]["explanation"]

    scenario(of)


def test_events_about_one_pod_are_limited_and_repetitions_counted() -> None:
    """As client-go's: 25 at once, then one in five minutes."""

    async def of(reports: Reports) -> None:
        noisy, other = await reports.pod("noisy"), await reports.pod("other")
        await reports.clock.sleep(1)
        for number in range(100):
            cached = reports.cache.pods[noisy["metadata"]["uid"]]
            reports.reporter.warn(cached, "Refused", f"attempt {number}")
            await reports.clock.sleep(1)
        reports.reporter.warn(reports.cache.pods[other["metadata"]["uid"]], "Refused", "attempt 0")
        await reports.clock.sleep(1)
        found = {
            event["involvedObject"]["name"]: (event["count"], event["message"])
            for event in reports.kube.store.of(EVENTS).values()
        }
        assert found == {"noisy": (25, "attempt 24"), "other": (1, "attempt 0")}
        await reports.clock.sleep(300)
        cached = reports.cache.pods[noisy["metadata"]["uid"]]
        reports.reporter.warn(cached, "Refused", "later")
        await reports.clock.sleep(1)
        assert reports.reported(noisy) == ["later"]

    scenario(of)


def test_reasons_that_change_all_the_time_cost_a_bounded_number_of_writes() -> None:
    """A node comes and goes; the allocator records the reasons of a signature every ten seconds."""
    writes: dict[int, int] = {}

    def of(pods: int) -> Callable[[Reports], Awaitable[None]]:
        async def run(reports: Reports) -> None:
            waiting = [await reports.pod(f"pod-{number}") for number in range(pods)]
            await reports.clock.sleep(1)
            for pod in waiting:
                reports.waits(pod, "before")
            await reports.clock.sleep(60)
            before = reports.kube.store.revision
            for number in range(6):
                for pod in waiting:
                    reports.waits(pod, str(number))
                await reports.clock.sleep(10)
            writes[pods] = reports.kube.store.revision - before

        return run

    for pods in (10, 200, 400):
        scenario(of(pods))
    assert writes[10] == 10 * 6 * 2, "a BindRequest and an event each time"
    assert writes[200] == writes[400] <= 60 * REPEATS_PER_S + MOST_REPEATS


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    async def of(reports: Reports) -> None:
        pods = [await reports.pod(f"pod-{number}") for number in range(6)]
        await reports.clock.sleep(1)
        for number, pod in enumerate(pods):
            reports.waits(pod, "why")
            if number % 2:
                reports.decided(pod)
            if number % 3:
                cached = reports.cache.pods[pod["metadata"]["uid"]]
                reports.reporter.warn(cached, "Refused", "why")
        await reports.clock.sleep(1)
        assert _kept(reports.reporter)
        for pod in pods:
            await reports.kube.delete(PODS, pod["metadata"]["name"], "ns", grace_period_s=0)
        await reports.clock.sleep(60)
        assert not _kept(reports.reporter)
        assert not reports.reporter.backlog

    scenario(of)


def _kept(reporter: Reporter) -> list[str]:
    """The names of the maps in which something is kept."""
    return [name for name, value in vars(reporter).items() if isinstance(value, dict) and value]
