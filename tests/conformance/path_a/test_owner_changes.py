"""A pool changes its owner, both ways, while pods come and go: no device is lost or shared."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.conformance.left_out import only_where_taints_are_kept
from tests.conformance.path_a.conftest import create_pools, gone_after
from tests.conformance.stand import NAMESPACE, Stand, phase_of, standing, until_seen

from dray.api import names
from dray.kube.ports import CLAIMS, EVENTS, NODES, PODS, POOLS, Object
from dray.kube.probe import probe
from dray_sandbox.layout import SimulatedNode, StackOptions
from tools.faults.fault_stack import FAST_SETTINGS
from tools.faults.history import StackHistory, watch_history

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.real,
    pytest.mark.timeout(600),
]
SHARED, DEDICATED = "shared", "dedicated"
POOL_OF = {"sim-1": SHARED, "sim-2": SHARED, "sim-3": DEDICATED}
CARDS = 4
QUARANTINE_S = 3.0
ROUNDS = 4
"""Owners that the pool has after the first, in turn."""
WHO = (names.OWNER_KUBE_SCHEDULER, names.OWNER_DRAY)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand() -> AsyncIterator[Stand]:
    """Two shared nodes and a dedicated one, dray's at first, with every time-out shortened."""
    nodes = tuple(
        SimulatedNode(name, "A100", CARDS, {names.POOL_LABEL: pool})
        for name, pool in POOL_OF.items()
    )
    settings = {**FAST_SETTINGS, "DRAY_OWNER__QUARANTINE": f"{QUARANTINE_S:g}s"}
    options = StackOptions(
        name="owners", control_plane="real", nodes=nodes, allocators=2, settings=settings
    )
    async with standing(options) as made:
        keeps = await probe(made.kube, "dray-system", revision=1)
        only_where_taints_are_kept(keeps.device_taints)
        await create_pools(made.kube, {SHARED: names.OWNER_DRAY})
        spec = {"schedulingConfigTemplate": "on", "dedicated": True}
        await made.kube.create(POOLS, {"metadata": {"name": DEDICATED}, "spec": spec})
        await made.until(lambda: _published(made), "all cards")
        yield made


async def test_nothing_is_allocated_twice_or_lost_while_owners_change_under_load(
    stand: Stand,
) -> None:
    async with watch_history(stand.kube) as history, gone_after(stand) as stays:
        dice = random.Random(11)
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            users = [group.create_task(_user(stand, dice.random(), n, over)) for n in range(12)]
            for owner in WHO * (ROUNDS // 2):
                await asyncio.sleep(2.5)
                await _give(stand, SHARED, owner)
                await asyncio.sleep(2.5)
            over.set()
        lived = sum(user.result() for user in users)
        await _fill(stand, stays, SHARED, 16)

        await until_seen(stand.kube, history)
        judge = history.check_all()
        assert judge.violations == []
        assert _failed(history) == []
        by_dray = {uid: _allocated_by(claim) for uid, claim in _claims_seen(history).items()}
        counts = Counter(by_dray.values())
        print(f"{lived} pods came and went, {judge.bound} bound, claims by dray: {counts}")
        assert min(counts[True], counts[False]) >= 5


async def test_waiting_pods_go_with_their_pool(stand: Stand) -> None:
    """Full cards; those that wait get the next free ones, from the pool's owner at that time."""
    async with gone_after(stand) as made:
        await _fill(stand, made, SHARED, 16)
        for name in ("first", "second"):
            made.append(name)
            await stand.submit(name, SHARED, vram_request="20Gi")
        await stand.until(lambda: _gates(stand, "first"), "dray's gate")

        await _give(stand, SHARED, names.OWNER_KUBE_SCHEDULER)
        await stand.until(lambda: _ungated(stand, "first", "second"), "the gates lifted")
        await stand.delete(made.pop(0))
        await stand.until(lambda: _one_runs(stand, "first", "second"), "one of both runs")

        await _give(stand, SHARED, names.OWNER_DRAY)
        await stand.delete(made.pop(0))
        await stand.running("first", "second")
        deciders = [_allocated_by(await _claim(stand, name)) for name in ("first", "second")]
        assert sorted(deciders) == [False, True]


async def test_pods_that_dray_would_bind_get_an_event_and_wait_for_it(stand: Stand) -> None:
    async with gone_after(stand) as made:
        await _fill(stand, made, DEDICATED, 8)
        made.append("waits")
        await stand.submit("waits", DEDICATED, vram_request="20Gi")

        await _give(stand, DEDICATED, names.OWNER_KUBE_SCHEDULER)
        await stand.until(lambda: _has_event(stand, "waits", "OwnerChanged"), "the event")
        assert await _tainted(stand, "sim-3"), "other pods came onto the dedicated node"
        await stand.delete(made.pop(0))
        made.append("newcomer")
        await stand.submit("newcomer", DEDICATED, vram_request="20Gi")
        await stand.running("newcomer")
        assert phase_of((await stand.pods())["waits"]) == "Pending"

        await _give(stand, DEDICATED, names.OWNER_DRAY)
        await stand.delete(made.pop(0))
        await stand.running("waits")


async def test_an_allocation_that_lands_too_late_costs_the_later_pod_its_place(
    stand: Stand,
) -> None:
    """What kube-scheduler could only do by a write of more than the quarantine's age."""
    async with watch_history(stand.kube) as history, gone_after(stand) as made:
        await _give(stand, SHARED, names.OWNER_KUBE_SCHEDULER)
        made += ["theirs", "ours"]
        await stand.submit("theirs", SHARED, vram_request="40Gi", gpu_model="B200")
        await stand.until(lambda: _has_claim(stand, "theirs"), "its claim")
        await _give(stand, SHARED, names.OWNER_DRAY)
        await stand.submit("ours", SHARED, vram_request="40Gi")
        await stand.running("ours")

        await _allocate_as_kube_scheduler(stand, "theirs", await _claim(stand, "ours"))

        await stand.until(lambda: _has_event(stand, "theirs", "DoubleSale"), "the event")

        async def evicted() -> bool:
            return "theirs" not in await stand.pods()

        await stand.until(evicted, "the later pod's eviction")
        assert phase_of((await stand.pods())["ours"]) == "Running"
        await until_seen(stand.kube, history)
        assert [
            one for one in history.check_all().violations if "DOUBLE ALLOCATION" not in one
        ] == []


async def _user(stand: Stand, luck: float, number: int, over: asyncio.Event) -> int:
    """Pods one after the other, some deleted before they run; how many."""
    lived, dice = 0, random.Random(luck)
    while not over.is_set():
        name = f"user-{number}-{lived}"
        cards = dice.choice((1, 1, 2))
        memory = dice.choice(("10Gi", "20Gi", "30Gi"))
        await stand.submit(name, SHARED, gpu_count=str(cards), vram_request=memory)
        lived += 1
        await asyncio.sleep(dice.uniform(0.5, 6.0))
        await stand.kube.delete(PODS, name, NAMESPACE, grace_period_s=1)
    return lived


async def _fill(stand: Stand, made: list[str], pool: str, pods: int) -> None:
    """Fill a pool's cards with pods that run, half a card each."""
    made += [f"full-{number}" for number in range(pods)]
    for name in made:
        await stand.submit(name, pool, vram_request="20Gi")
    await stand.running(*made)


async def _give(stand: Stand, pool: str, owner: str) -> None:
    await stand.kube.patch(POOLS, pool, {"spec": {"owner": owner}})

    async def given() -> bool:
        obj = await stand.kube.get(POOLS, pool)
        return bool((obj.get("status") or {}).get("owner") == owner)

    await stand.until(given, f"{pool} is {owner}'s")


async def _published(stand: Stand) -> bool:
    devices = await stand.devices()
    pools = {device["attributes"]["pool_name"]["string"] for device in devices}
    return len(devices) == CARDS * len(POOL_OF) and "" not in pools


async def _gates(stand: Stand, pod: str) -> list[str]:
    spec = (await stand.kube.get(PODS, pod, NAMESPACE))["spec"]
    return [gate["name"] for gate in spec.get("schedulingGates") or ()]


async def _ungated(stand: Stand, *pods: str) -> bool:
    return not any([await _gates(stand, pod) for pod in pods])


async def _one_runs(stand: Stand, *names_: str) -> bool:
    pods = await stand.pods()
    return sum(phase_of(pods[name]) == "Running" for name in names_) == 1


async def _has_event(stand: Stand, pod: str, reason: str) -> bool:
    selector = f"involvedObject.name={pod},reason={reason}"
    return bool((await stand.kube.list(EVENTS, NAMESPACE, field_selector=selector)).objects)


async def _tainted(stand: Stand, node: str) -> bool:
    taints = (await stand.kube.get(NODES, node))["spec"].get("taints") or ()
    return names.DEDICATED_TAINT in [taint["key"] for taint in taints]


async def _has_claim(stand: Stand, pod: str) -> bool:
    return await stand.claim_of(pod) is not None


async def _claim(stand: Stand, pod: str) -> Object:
    claim = await stand.claim_of(pod)
    assert claim is not None
    return claim


async def _allocate_as_kube_scheduler(stand: Stand, pod: str, like: Object) -> None:
    """Write what kube-scheduler would write for the pod: what another claim has already."""
    claim = await _claim(stand, pod)
    uid = (await stand.kube.get(PODS, pod, NAMESPACE))["metadata"]["uid"]
    allocation = {**like["status"]["allocation"]}
    allocation.pop("allocationTimestamp")
    results = [
        {**result, "shareID": "00000000-0000-4000-8000-00000000000" + str(number)}
        for number, result in enumerate(allocation["devices"]["results"])
    ]
    seen = await stand.kube.list(PODS, NAMESPACE)
    now = max(
        condition["lastTransitionTime"]
        for one in seen.objects
        for condition in one["status"].get("conditions") or ()
        if condition.get("lastTransitionTime")
    )
    status = {
        "allocation": {**allocation, "devices": {"results": results}, "allocationTimestamp": now},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": uid}],
    }
    name = claim["metadata"]["name"]
    await stand.kube.patch(CLAIMS, name, {"status": status}, NAMESPACE, subresource="status")


def _claims_seen(history: StackHistory) -> dict[str, Object]:
    """Claims that were allocated, by uid, as they were then."""
    return {
        change.object["metadata"]["uid"]: change.object
        for change in history.changes
        if change.resource == CLAIMS
        and change.object is not None
        and (change.object.get("status") or {}).get("allocation")
    }


def _allocated_by(claim: Object) -> bool:
    """Whether dray allocated the claim."""
    annotations = claim["metadata"].get("annotations") or {}
    return int(annotations.get(names.DECISION, 0)) > int(annotations.get(names.VOID, 0))


def _failed(history: StackHistory) -> list[str]:
    return [
        f"{change.key[1]}: {(change.object['status']).get('reason')}"
        for change in history.changes
        if change.resource == PODS
        and change.object is not None
        and phase_of(change.object) == "Failed"
    ]
