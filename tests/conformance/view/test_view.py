"""kube-scheduler, started anew, sees the cluster as dray has filled it, and fills the rest."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

import pytest
import pytest_asyncio
from tests.conformance.stand import NAMESPACE, Stand, phase_of, results_of, standing
from tests.conformance.view.churn import Create, Delete, Step, steps

from dray.domain import names
from dray.domain.quantities import parse_quantity
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    CLASSES,
    EVENTS,
    NODES,
    PODS,
    POOLS,
    SLICES,
    KubeUnavailableError,
    Object,
    RefusedError,
)
from dray.messages.facts import ClusterObserved
from dray_sandbox.access import SCHEDULER
from dray_sandbox.controlplane.audit import AuditedRequest
from dray_sandbox.faults.arena import furnish
from dray_sandbox.faults.plan import DEDICATED, SHARED
from dray_sandbox.layout import StackOptions, simulated_nodes

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]
KUBES = "theirs"
"""A pool that kube-scheduler owns."""
SEED, STEPS = 20261121, 500
SHARES_AT_ONCE, CARDS_AT_ONCE = 70, 9
"""Pods at once: more shares of cards than there is room for, and fewer whole cards."""
AT_A_TIME = 8
OTHER = "gpus.dray.dev"
"""A driver of which dray is told nothing."""
BUSY_S = 240.0
HARMLESS = ("The manifest file is empty",)
"""What kube-scheduler logs as an error on every start."""
NO_ROOM = "cannot allocate all claims"
FILL_TFLOPS, FILL_VRAM = "50", "8Gi"
OVERSOLD = {"oversubscription": {"tflopsRatio": 1.5, "vramRatio": 2}}


@dataclass(slots=True)
class View:
    """The cluster after dray's steps, and what a fresh kube-scheduler does from then on."""

    stand: Stand
    kept: ClusterObserved
    before: dict[str, Object]
    """Allocations by claim, as dray and the former kube-scheduler left them."""
    waited: int
    """Pods for which there was no room at the end."""
    log_began: int
    """Bytes of the former kube-scheduler's log."""
    audit_began: int
    """Requests before the fresh one's."""

    def log(self) -> str:
        """What the fresh kube-scheduler printed."""
        text = self.stand.stack.runner.log("kube-scheduler").read_bytes()
        return text[self.log_began :].decode()

    def requests(self) -> list[AuditedRequest]:
        """What the fresh kube-scheduler asked of the API server."""
        return self.stand.audited(SCHEDULER)[self.audit_began :]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def view() -> AsyncIterator[View]:
    options = StackOptions(
        name="conformance-view",
        control_plane="real",
        nodes=simulated_nodes(6, gpus=4, models=("A100",), pools=(DEDICATED, SHARED, KUBES)),
        settings={"DRAY_OWNER__QUARANTINE": "1s", "DRAY_PUBLISHING__STATUS_EVERY": "200ms"},
    )
    async with standing(options) as stand:
        await furnish(stand.kube)
        await stand.kube.patch(POOLS, SHARED, {"spec": {"capacityConfig": OVERSOLD}})
        spec = {"schedulingConfigTemplate": "default-scheduling-config", "owner": "kube-scheduler"}
        await stand.kube.create(POOLS, {"metadata": {"name": KUBES}, "spec": spec})
        kept = await stand.until(stand.published, "the probe")
        pools = (DEDICATED, SHARED, KUBES) if kept.device_taints else (DEDICATED, KUBES)
        await _ready(stand, kept)
        at_once = SHARES_AT_ONCE if kept.consumable_capacity else CARDS_AT_ONCE
        await _churn(stand, steps(SEED, STEPS, pools, at_once))
        waited = await _settle(stand)
        if kept.consumable_capacity:  # there are more pods than cards
            await _make_room(stand, pools)
        runner = stand.stack.runner
        await runner.stop("kube-scheduler")
        claims = (await stand.kube.list(CLAIMS, NAMESPACE)).objects
        view = View(
            stand,
            kept,
            before={
                claim["metadata"]["name"]: claim["status"]["allocation"]
                for claim in claims
                if results_of(claim)
            },
            waited=waited,
            log_began=runner.log("kube-scheduler").stat().st_size,
            audit_began=len(stand.audited(SCHEDULER)),
        )
        await stand.stack.restart("kube-scheduler")
        yield view


async def _ready(stand: Stand, kept: ClusterObserved) -> None:
    """Wait until every pool is served and every card is published as its pool wants it."""

    async def holds() -> bool:
        ready = [
            condition["status"]
            for pool in (await stand.kube.list(POOLS)).objects
            for condition in pool.get("status", {}).get("conditions") or ()
            if condition["type"] == "Ready"
        ]
        devices = await stand.devices()
        untainted = sum(not device.get("taints") for device in devices)
        in_pools = all(device["attributes"]["pool_name"]["string"] for device in devices)
        theirs = 8 if kept.device_taints else 24
        return ready == ["True"] * 3 and len(devices) == 24 and in_pools and untainted == theirs

    await stand.until(holds, "three pools of eight cards")


async def _churn(stand: Stand, all_steps: Iterable[Step]) -> None:
    """Take the steps, some at a time; a deletion waits for its pod's creation."""
    made: dict[str, asyncio.Event] = {}
    slots = asyncio.Semaphore(AT_A_TIME)

    async def take(step: Step) -> None:
        async with slots:
            if isinstance(step, Delete):
                await made[step.name].wait()
                await stand.kube.delete(PODS, step.name, NAMESPACE)
                return
            await _create(stand, step)
            made[step.name].set()

    async with asyncio.TaskGroup() as group:
        for step in all_steps:
            if isinstance(step, Create):
                made[step.name] = asyncio.Event()
            async with slots:
                group.create_task(take(step))


async def _create(stand: Stand, step: Create) -> None:
    asked = {"tflops_request": str(step.tflops), "vram_request": f"{step.vram_gi}Gi"}
    for _ in range(10):
        try:
            await stand.submit(step.name, step.pool, gpu_count=str(step.gpus), **asked)
            return
        except KubeUnavailableError:
            await asyncio.sleep(1)  # the webhook of a busy machine took too long
    raise AssertionError(f"{step} could not be created")


async def _settle(stand: Stand) -> int:
    """Wait until every pod runs, or is told why it waits; then remove those that wait."""

    async def settled() -> dict[str, bool] | None:
        pods = await stand.pods()
        if any("deletionTimestamp" in pod["metadata"] for pod in pods.values()):
            return None
        runs = {name: phase_of(pod) == "Running" for name, pod in pods.items()}
        waiting = [name for name, running in runs.items() if not running]
        told = await _told(stand)
        return runs if all(name in told for name in waiting) else None

    runs = await stand.until(settled, "every pod runs, or is told why not", BUSY_S)
    waiting = [name for name, running in runs.items() if not running]
    await stand.delete(*waiting)
    return len(waiting)


async def _make_room(stand: Stand, pools: Iterable[str]) -> None:
    """Let the pod of each pool go that frees most: by chance its cards may be full."""
    asked = {name: pod["metadata"]["annotations"] for name, pod in (await stand.pods()).items()}
    for pool in pools:
        members = [name for name in asked if asked[name].get(names.GPUPOOL) == pool]
        await stand.delete(max(members, key=lambda name: _shares(asked[name])))


def _shares(asked: Mapping[str, str]) -> int:
    """How many pods of the filling kind have room where one that asks for this was."""
    tflops = parse_quantity(asked[names.TFLOPS_REQUEST]).nano // parse_quantity(FILL_TFLOPS).nano
    return min(
        tflops, parse_quantity(asked[names.VRAM_REQUEST]).nano // parse_quantity(FILL_VRAM).nano
    )


async def _told(stand: Stand) -> set[str]:
    """Pods that were told why they wait, by dray or by kube-scheduler."""
    requests = await stand.kube.list(BIND_REQUESTS, NAMESPACE)
    by_dray = {
        one["metadata"]["name"]
        for one in requests.objects
        if one.get("status", {}).get("phase") == "Pending"
    }
    return by_dray | await _refused(stand)


async def _refused(stand: Stand) -> set[str]:
    """Pods that kube-scheduler said could not be scheduled."""
    events = await stand.kube.list(EVENTS, NAMESPACE)
    return {
        event["involvedObject"]["name"]
        for event in events.objects
        if event["reason"] == "FailedScheduling"
        and "cannot allocate all claims" in event["message"]
    }


async def _room(view: View, pool: str) -> int:
    """How many pods of the filling kind fit on a pool's cards."""
    nodes = await view.stand.kube.list(NODES, label_selector=f"{names.POOL_LABEL}={pool}")
    members = {node["metadata"]["name"] for node in nodes.objects}
    counted = await view.stand.recounted()
    tflops, vram = parse_quantity(FILL_TFLOPS), parse_quantity(FILL_VRAM)
    return sum(
        min(
            free["virtual_tflops"].nano // tflops.nano,
            free["virtual_vram"].nano // vram.nano,
            99 if view.kept.consumable_capacity else 1,
        )
        for device, free in counted.free.items()
        if device[0] == names.DRIVER and device[1] in members and device not in counted.wholly
    )


async def _fill(view: View, pool: str, prefix: str) -> int:
    """Fill a pool of kube-scheduler's to the last share, and two pods more; how many fitted."""
    stand, room = view.stand, await _room(view, pool)
    pods = [f"{prefix}-{number}" for number in range(room + 2)]
    for name in pods:
        await stand.submit(name, pool, tflops_request=FILL_TFLOPS, vram_request=FILL_VRAM)

    async def settled() -> bool:
        found, refused = await stand.pods(), await _refused(stand)
        return all(phase_of(found[name]) == "Running" or name in refused for name in pods)

    await stand.until(settled, f"every pod of {pool} runs or is refused", BUSY_S)

    async def full() -> bool:
        found = await stand.pods()
        return sum(phase_of(found[name]) == "Running" for name in pods) == room

    await stand.until(full, f"{room} pods run in {pool}", BUSY_S)
    assert await _room(view, pool) == 0
    return room


async def test_dray_has_left_pods_and_room_behind(view: View) -> None:
    """Otherwise the tests below would say nothing."""
    pools = {
        pod["metadata"]["annotations"].get(names.GPUPOOL)
        for pod in (await view.stand.pods()).values()
    }
    assert pools == {DEDICATED, KUBES} | ({SHARED} if view.kept.device_taints else set())
    assert len(view.before) >= (20 if view.kept.consumable_capacity else 5)


async def test_nothing_is_sold_twice(view: View) -> None:
    await view.stand.recounted()


async def test_what_kube_scheduler_owns_is_filled_to_the_last_share(view: View) -> None:
    assert await _fill(view, KUBES, "fill") >= 1


async def test_another_drivers_devices_are_given_out_beside(view: View) -> None:
    """Exclusive devices, and such as share counters where the server keeps these."""
    stand = view.stand
    selector = {"cel": {"expression": f'device.driver == "{OTHER}"'}}
    made = {"metadata": {"name": OTHER}, "spec": {"selectors": [selector]}}
    await stand.kube.create(CLASSES, made)
    await _publish_others(stand, counters=view.kept.partitionable_devices)
    fitting = 4 if view.kept.partitionable_devices else 5
    pods = [f"other-{number}" for number in range(6)]
    for name in pods:
        await _take_other(stand, name)

    async def settled() -> bool:
        claims = [await stand.kube.get(CLAIMS, name, NAMESPACE) for name in pods]
        refused = await _refused(stand)
        return (
            all(
                results_of(claim) or name in refused
                for name, claim in zip(pods, claims, strict=True)
            )
            and sum(bool(results_of(claim)) for claim in claims) == fitting
        )

    await stand.until(settled, f"{fitting} of {len(pods)} pods get one of the other driver's")
    counted = await stand.recounted()
    assert all(amount.nano == 0 for amount in counted.counters.values())
    assert len(counted.counters) == view.kept.partitionable_devices


async def test_what_dray_allocates_from_now_on_is_bound_by_it(view: View) -> None:
    asked = {"tflops_request": FILL_TFLOPS, "vram_request": FILL_VRAM}
    if not view.kept.device_taints:
        with pytest.raises(RefusedError, match="drops device taints"):
            await view.stand.submit("gated", SHARED, **asked)
        return
    assert await _room(view, SHARED) >= 2

    await view.stand.submit("gated", SHARED, **asked)

    await view.stand.running("gated")
    await view.stand.recounted()


async def test_cards_that_come_to_kube_scheduler_are_filled_around_what_dray_allocated(
    view: View,
) -> None:
    """Around nothing where taints are dropped: dray has given away none of them."""
    stand, asked = view.stand, {"tflops_request": FILL_TFLOPS, "vram_request": FILL_VRAM}
    drays = 8 if view.kept.device_taints else 0
    await stand.kube.patch(POOLS, SHARED, {"spec": {"owner": "kube-scheduler"}})

    async def is_theirs() -> bool:
        devices = await stand.devices()
        pool = await stand.kube.get(POOLS, SHARED)
        tainted = sum(bool(device.get("taints")) for device in devices)
        return tainted == drays and pool.get("status", {}).get("owner") == "kube-scheduler"

    await stand.until(is_theirs, "the shared pool is kube-scheduler's")

    async def is_admitted() -> bool:
        try:
            pod = await stand.submit("first-of-theirs", SHARED, **asked)
        except RefusedError:
            return False
        return not pod["spec"].get("schedulingGates")

    await stand.until(is_admitted, "its pods are kube-scheduler's")
    await stand.running("first-of-theirs")  # and has its share before room is counted
    assert await _fill(view, SHARED, "around") >= 1


async def test_what_was_allocated_before_is_what_it_was(view: View) -> None:
    claims = (await view.stand.kube.list(CLAIMS, NAMESPACE)).objects
    after = {
        claim["metadata"]["name"]: claim.get("status", {}).get("allocation") for claim in claims
    }

    assert {name: after.get(name) for name in view.before} == view.before
    pods = await view.stand.pods()
    assert all(phase_of(pod) == "Running" for name, pod in pods.items() if "churn" in name)


async def test_the_fresh_kube_scheduler_met_no_conflict_and_nothing_invalid(view: View) -> None:
    requests = view.requests()
    writes = [one for one in requests if one.verb in ("create", "update", "patch", "delete")]
    claims = [one for one in writes if one.resource == CLAIMS.plural]

    assert len(claims) >= 4
    assert [(one.verb, one.path, one.code) for one in claims if one.code >= 400] == []
    # It writes an event again when the answer was late; that says nothing of claims and pods.
    others = [one for one in writes if one.resource != EVENTS.plural]
    assert [(one.verb, one.path, one.code) for one in others if one.code == 409] == []
    assert _complaints(view.log()) == []


def _complaints(log: str) -> list[str]:
    """Errors, and what is called invalid."""
    lines = [line for line in log.splitlines() if line.startswith("E") or "nvalid" in line]
    return [line for line in lines if not any(harmless in line for harmless in HARMLESS)]


async def _publish_others(stand: Stand, *, counters: bool) -> None:
    """Five devices, of which four have together what one of them has."""
    devices: list[Object] = [
        {"name": f"part-{number}", **_consumes(2, counters)} for number in range(4)
    ]
    devices.append({"name": "whole", **_consumes(8, counters)})
    pool = {"name": "others", "generation": 1, "resourceSliceCount": 2 if counters else 1}
    spec = {"driver": OTHER, "allNodes": True, "pool": pool}
    parts: list[Object] = [{**spec, "devices": devices}]
    if counters:
        counted = {"name": "shares", "counters": {"slices": {"value": "8"}}}
        parts.append({**spec, "sharedCounters": [counted]})
    for number, part in enumerate(parts):
        await stand.kube.create(SLICES, {"metadata": {"name": f"others-{number}"}, "spec": part})


def _consumes(amount: int, counters: bool) -> Object:
    if not counters:
        return {}
    counted = {"counterSet": "shares", "counters": {"slices": {"value": str(amount)}}}
    return {"consumesCounters": [counted]}


async def _take_other(stand: Stand, name: str) -> None:
    """A pod with a claim for one device of the other driver."""
    request = {"name": "device", "exactly": {"deviceClassName": OTHER}}
    claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    await stand.kube.create(CLAIMS, claim, NAMESPACE)
    spec = {
        "resourceClaims": [{"name": "device", "resourceClaimName": name}],
        "containers": [{"name": "app", "image": "app"}],
    }
    await stand.kube.create(PODS, {"metadata": {"name": name}, "spec": spec}, NAMESPACE)
