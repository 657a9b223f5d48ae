"""kube-scheduler sees after a restart the cluster as dray has filled it, and fills the rest."""

import pytest
from tests.conformance.stand import NAMESPACE, phase_of, results_of
from tests.conformance.view.filled import BUSY_S, FILL_TFLOPS, FILL_VRAM, KUBES, View, refused_pods
from tests.conformance.view.other_driver import OTHER, publish_others, take_other

from dray.api import names
from dray.api.quantities import parse_quantity
from dray.kube.ports import CLAIMS, CLASSES, EVENTS, NODES, POOLS, RefusedError
from tools.faults.plan import DEDICATED, SHARED

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]
HARMLESS = ("The manifest file is empty",)
"""What kube-scheduler logs as an error on every start."""
NO_ROOM = "cannot allocate all claims"


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
        found, refused = await stand.pods(), await refused_pods(stand)
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


async def test_nothing_is_allocated_twice(view: View) -> None:
    await view.stand.recounted()


async def test_what_kube_scheduler_owns_is_filled_to_the_last_share(view: View) -> None:
    assert await _fill(view, KUBES, "fill") >= 1


async def test_another_drivers_devices_are_allocated_as_well(view: View) -> None:
    """Exclusive devices, and such as share counters where the server keeps these."""
    stand = view.stand
    selector = {"cel": {"expression": f'device.driver == "{OTHER}"'}}
    made = {"metadata": {"name": OTHER}, "spec": {"selectors": [selector]}}
    await stand.kube.create(CLASSES, made)
    await publish_others(stand, counters=view.kept.partitionable_devices)
    fitting = 4 if view.kept.partitionable_devices else 5
    pods = [f"other-{number}" for number in range(6)]
    for name in pods:
        await take_other(stand, name)

    async def settled() -> bool:
        claims = [await stand.kube.get(CLAIMS, name, NAMESPACE) for name in pods]
        refused = await refused_pods(stand)
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
    """Around nothing if taints are dropped: dray has given away none of them."""
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
