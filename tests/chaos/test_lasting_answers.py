"""What a process matches whose requests about one object are refused, and what is reported then."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dray.api.errors import DrayError
from dray.api.names import GPUPOOL
from dray.bus.memory import MemoryBus
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    BIND_REQUESTS,
    EVENTS,
    PODS,
    POOLS,
    TEMPLATES,
    ConflictError,
    KubeUnavailableError,
    NotFoundError,
    Object,
    RefusedError,
)
from tools.simulation.answers import KUBE_ANSWERS, MARKER
from tools.simulation.faulty_adapters import FaultyKube, connections
from tools.simulation.invariants import EXPLAIN_WITHIN_S, explanation, unexplained_pods
from tools.simulation.loop import EPOCH_UNIX_S, Process, VirtualLoop
from tools.simulation.refusals import (
    KINDS,
    KUBE_KINDS,
    READ_KINDS,
    TENANT,
    Case,
    LastingRefusal,
    cases,
    refuse,
)
from tools.simulation.trace import SimulationTrace
from tools.simulation.world import SimulatedWorld

ANSWERS = {answer.name: answer for answer in KUBE_ANSWERS}
CHANGE = {"metadata": {"labels": {"seen": "1"}}}


def case(kind: str, answer: str = "403") -> Case:
    return Case(next(one for one in KUBE_KINDS if one.name == kind), ANSWERS[answer])


class Stage:
    """A world without processes, and one connection of cc-1."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.world = SimulatedWorld(0, loop, SimulationTrace(loop))
        self.world.disable_call_faults()
        self.store = self.world.kube.store
        self.kube = self.connect("cc-1")

    def connect(self, name: str) -> FaultyKube:
        kube, _ = connections(Process(name), self.world.kube, MemoryBus(), self.world)
        assert isinstance(kube, FaultyKube)
        return kube

    async def pod(self, name: str, namespace: str = TENANT) -> Object:
        metadata = {"name": name, "annotations": {GPUPOOL: "pool"}}
        entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
        spec = {"containers": [{"name": "app"}], "resourceClaims": [entry]}
        return await self.world.kube.create(PODS, {"metadata": metadata, "spec": spec}, namespace)

    def labels(self, name: str, namespace: str = TENANT) -> Any:
        return self.store.get(PODS, name, namespace)["metadata"].get("labels")


Play = Callable[[Stage], Coroutine[Any, Any, None]]


def play(act: Play) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(act(Stage(loop)))
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("403", RefusedError),
        ("404", NotFoundError),
        ("409", ConflictError),
        ("422", RefusedError),
        ("429", KubeUnavailableError),
        ("500", KubeUnavailableError),
        ("503", KubeUnavailableError),
        ("time-out", KubeUnavailableError),
        ("none", KubeUnavailableError),
    ],
)
def test_each_time_the_answer_is_the_error_that_the_adapter_makes_of_it(
    answer: str, error: type[DrayError]
) -> None:
    async def act(stage: Stage) -> None:
        await stage.pod("tenant-0")
        refusal = refuse(case("patch a pod", answer), namespace=TENANT)
        stage.world.refuse(refusal)
        for _ in range(3):
            with pytest.raises(error, match=MARKER):
                await stage.kube.patch(PODS, "tenant-0", CHANGE, TENANT)
        assert refusal.count == 3
        assert stage.labels("tenant-0") is None
        stage.world.lift_refusals()
        await stage.kube.patch(PODS, "tenant-0", CHANGE, TENANT)
        assert stage.labels("tenant-0")

    play(act)


def test_retry_after_is_reported() -> None:
    async def act(stage: Stage) -> None:
        stage.world.refuse(refuse(case("get a pod", "429 with Retry-After"), namespace=TENANT))
        with pytest.raises(KubeUnavailableError) as refused:
            await stage.kube.get(PODS, "tenant-0", TENANT)
        assert refused.value.retry_after_s == 4.0

    play(act)


@pytest.mark.parametrize("answer", ["time-out, carried out", "none, carried out"])
def test_a_request_can_be_carried_out_although_no_answer_says_so(answer: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.pod("tenant-0")
        stage.world.refuse(refuse(case("patch a pod", answer), namespace=TENANT))
        with pytest.raises(KubeUnavailableError):
            await stage.kube.patch(PODS, "tenant-0", CHANGE, TENANT)
        assert stage.labels("tenant-0")

    play(act)


def test_an_answer_that_never_comes_is_waited_for_as_the_client_waits() -> None:
    async def act(stage: Stage) -> None:
        stage.world.refuse(refuse(case("get a pod", "none"), namespace=TENANT))
        with pytest.raises(KubeUnavailableError):
            await stage.kube.get(PODS, "tenant-0", TENANT)
        assert stage.loop.time() == pytest.approx(30, abs=0.1)

    play(act)


def test_neither_other_objects_nor_other_requests_nor_other_processes_are_refused() -> None:
    async def act(stage: Stage) -> None:
        for name, namespace in (("tenant-0", TENANT), ("tenant-0", "team"), ("other", TENANT)):
            await stage.pod(name, namespace)
        stage.world.refuse(refuse(case("patch a pod"), "tenant-0", TENANT))
        with pytest.raises(RefusedError):
            await stage.kube.patch(PODS, "tenant-0", CHANGE, TENANT)
        await stage.kube.patch(PODS, "tenant-0", CHANGE, "team")
        await stage.kube.patch(PODS, "other", CHANGE, TENANT)
        await stage.kube.patch(PODS, "tenant-0", {"status": {}}, TENANT, subresource="status")
        await stage.kube.get(PODS, "tenant-0", TENANT)
        await stage.connect("k-scheduler").patch(PODS, "tenant-0", CHANGE, TENANT)
        await stage.world.kube.patch(PODS, "tenant-0", {"metadata": {"labels": None}}, TENANT)

    play(act)


def test_absent_is_fine_where_the_server_says_so_of_what_is_to_be_deleted() -> None:
    async def act(stage: Stage) -> None:
        template = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {}}}}
        await stage.world.kube.create(TEMPLATES, template, TENANT)
        stage.world.refuse(refuse(case("delete a template", "404"), namespace=TENANT))
        await stage.kube.delete(TEMPLATES, "t", TENANT)
        assert stage.store.of(TEMPLATES)

    play(act)


def test_what_is_read_has_an_unknown_form_for_one_process_and_stays_what_it_is() -> None:
    async def act(stage: Stage) -> None:
        stored = await stage.pod("tenant-0")
        kind = next(one for one in READ_KINDS if one.name == "read a pod")
        stage.world.refuse(refuse(Case(kind, next(_answers_of(kind))), namespace=TENANT))
        for shown in (
            await stage.kube.get(PODS, "tenant-0", TENANT),
            (await stage.kube.list(PODS)).objects[0],
            (await anext(aiter(stage.kube.watch(PODS)))).objects[0],  # type: ignore[union-attr]
        ):
            assert shown["spec"] != stored["spec"]
        assert await stage.connect("k-lets").get(PODS, "tenant-0", TENANT) == stored
        assert stage.store.get(PODS, "tenant-0", TENANT)["spec"] == stored["spec"]

    play(act)


def _answers_of(kind: Any) -> Any:
    return (one.answer for one in cases() if one.kind == kind)


def test_the_first_cases_have_every_kind_of_request_once() -> None:
    every = cases()
    assert {one.kind.name for one in every[: len(KINDS)]} == {kind.name for kind in KINDS}
    assert len({str(one) for one in every}) == len(every)


def test_trying_again_without_a_rest_is_noticed() -> None:
    refusal = refuse(case("patch a pod"), "tenant-0", TENANT)
    refusal.count = 60
    assert not refusal.is_retried_too_often(20.0)
    assert refusal.is_retried_too_often(5.0)


@pytest.mark.parametrize(
    ("name", "about"), [("tenant-0", True), ("tenant-0-gpu-00001", True), ("gpu-0", False)]
)
def test_a_refusal_is_about_a_tenants_pods_and_their_claims(name: str, about: bool) -> None:
    assert refuse(case("patch a claim"), namespace=TENANT).concerns_pod_name(name) is about


def _silent(stage: Stage, refusal: LastingRefusal | None = None) -> list[str]:
    return list(
        unexplained_pods(
            stage.store,
            now_unix_s=stage.loop.now_unix_s(),
            since_unix_s=EPOCH_UNIX_S,
            exempt=lambda pod: refusal is not None and refusal.concerns_pod(pod),
        )
    )


def test_a_pod_must_be_bound_or_given_a_reason_in_time() -> None:
    async def act(stage: Stage) -> None:
        await stage.world.kube.create(POOLS, {"metadata": {"name": "pool"}, "spec": {}})
        pod = await stage.pod("tenant-0")
        assert _silent(stage) == []
        await asyncio.sleep(EXPLAIN_WITHIN_S + 1)
        (failure,) = _silent(stage)
        assert "tenant-0 is not bound and has no explanation" in failure
        assert _silent(stage, refuse(case("patch a pod"), namespace=TENANT)) == []
        owner = {"podUID": pod["metadata"]["uid"]}
        await _report(stage.world.kube, owner, {"phase": "Binding", "explanation": None})
        assert _silent(stage)
        await _report(stage.world.kube, owner, {"phase": "Pending", "explanation": "no room"})
        assert _silent(stage) == []

    play(act)


async def _report(kube: MemoryKube, spec: Object, status: Object) -> None:
    await kube.delete(BIND_REQUESTS, "tenant-0", TENANT)
    made = {"metadata": {"name": "tenant-0"}, "spec": spec}
    await kube.create(BIND_REQUESTS, made, TENANT)
    await kube.patch(BIND_REQUESTS, "tenant-0", {"status": status}, TENANT, subresource="status")


def test_a_reason_is_what_dray_warns_of_and_what_the_pods_own_bindrequest_explains() -> None:
    async def act(stage: Stage) -> None:
        pod = await stage.pod("tenant-0")
        await _report(stage.world.kube, {"podUID": "another"}, {"explanation": "of another"})
        for name, kind, component in (
            ("a", "Warning", "tensor-fusion.ai/claim-controller"),
            ("b", "Normal", "tensor-fusion.ai/claim-controller"),
            ("c", "Warning", "default-scheduler"),
        ):
            event = {
                "metadata": {"name": name},
                "involvedObject": {"uid": pod["metadata"]["uid"]},
                "type": kind,
                "reportingComponent": component,
                "message": f"event {name}",
            }
            await stage.world.kube.create(EVENTS, event, TENANT)
        assert explanation(stage.store, pod) == "event a"

    play(act)
