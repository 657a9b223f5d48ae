"""Status subresources, allocations and bindings: what dray's executor relies on."""

import pytest
from msgspec.structs import replace

from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import DeviceId, OpaqueConfig
from dray.kube.convert import allocation_from, claim_from, pod_from, status_to
from dray.kube.ports import CLAIMS, NODES, PODS, ConflictError, NotFoundError, RefusedError
from dray.kube.probe import probe

USER = {
    "apiGroup": "example.com",
    "resource": "jobs",
    "name": "j",
    "uid": "0b1f6d5e-0000-4000-8000-000000000001",
}


async def test_a_status_written_at_creation_is_dropped(world, kube, bodies) -> None:
    body = bodies.claim() | {"status": {"allocation": bodies.allocation()}}
    made = await kube.create(CLAIMS, body, world.namespace)
    assert not made.get("status", {}).get("allocation")


async def test_a_status_patch_changes_the_status_alone(world, kube, bodies) -> None:
    await kube.create(CLAIMS, bodies.claim(), world.namespace)
    patch = {
        "metadata": {"annotations": {"example.com/a": "1"}},
        "status": {"allocation": bodies.allocation()},
    }
    after = await kube.patch(CLAIMS, "c", patch, world.namespace, subresource="status")
    assert after["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    assert "example.com/a" not in (after["metadata"].get("annotations") or {})
    plain = {"metadata": {"annotations": {"example.com/a": "1"}}, "status": {"allocation": None}}
    after = await kube.patch(CLAIMS, "c", plain, world.namespace)
    assert after["metadata"]["annotations"]["example.com/a"] == "1"
    assert after["status"]["allocation"]


async def test_a_status_patch_is_fenced_by_its_revision(world, kube, bodies) -> None:
    made = await kube.create(CLAIMS, bodies.claim(), world.namespace)
    void = {"metadata": {"annotations": {"example.com/void": "1"}}}
    await kube.patch(CLAIMS, "c", void, world.namespace)
    patch = {
        "metadata": {"resourceVersion": made["metadata"]["resourceVersion"]},
        "status": {"allocation": bodies.allocation()},
    }
    with pytest.raises(ConflictError):
        await kube.patch(CLAIMS, "c", patch, world.namespace, subresource="status")


async def allocated(world, kube, bodies, **status) -> None:
    await kube.create(CLAIMS, bodies.claim(), world.namespace)
    patch = {"status": {"allocation": bodies.allocation(), **status}}
    await kube.patch(CLAIMS, "c", patch, world.namespace, subresource="status")


async def test_an_allocation_can_not_be_changed(world, kube, bodies) -> None:
    await allocated(world, kube, bodies)
    patch = {"status": {"allocation": bodies.allocation("gpu-1")}}
    with pytest.raises(RefusedError, match=r"immutable|cannot be modified"):
        await kube.patch(CLAIMS, "c", patch, world.namespace, subresource="status")


async def test_an_allocation_may_be_cleared_while_nothing_reserves_it(world, kube, bodies) -> None:
    await allocated(world, kube, bodies)
    clear = {"status": {"allocation": None}}
    after = await kube.patch(CLAIMS, "c", clear, world.namespace, subresource="status")
    assert not after.get("status", {}).get("allocation")


async def test_a_reserved_allocation_can_not_be_cleared(world, kube, bodies) -> None:
    await allocated(world, kube, bodies, reservedFor=[USER])
    clear = {"status": {"allocation": None}}
    with pytest.raises(RefusedError, match=r"reservedFor|immutable"):
        await kube.patch(CLAIMS, "c", clear, world.namespace, subresource="status")
    clear = {"status": {"allocation": None, "reservedFor": None}}
    after = await kube.patch(CLAIMS, "c", clear, world.namespace, subresource="status")
    assert not after.get("status", {}).get("allocation")


async def test_nothing_reserves_an_unallocated_claim(world, kube, bodies) -> None:
    await kube.create(CLAIMS, bodies.claim(), world.namespace)
    with pytest.raises(RefusedError, match="reservedFor"):
        await kube.patch(
            CLAIMS, "c", {"status": {"reservedFor": [USER]}}, world.namespace, subresource="status"
        )


async def test_nothing_new_reserves_a_claim_that_is_being_deleted(world, kube, bodies) -> None:
    body = bodies.claim()
    body["metadata"]["finalizers"] = ["example.com/a"]
    await kube.create(CLAIMS, body, world.namespace)
    status = {"status": {"allocation": bodies.allocation()}}
    await kube.patch(CLAIMS, "c", status, world.namespace, subresource="status")
    await kube.delete(CLAIMS, "c", world.namespace)
    with pytest.raises(RefusedError, match="reservedFor"):
        await kube.patch(
            CLAIMS, "c", {"status": {"reservedFor": [USER]}}, world.namespace, subresource="status"
        )
    await kube.patch(CLAIMS, "c", {"metadata": {"finalizers": None}}, world.namespace)


async def test_an_allocation_names_requests_of_the_claim(world, kube, bodies) -> None:
    await kube.create(CLAIMS, bodies.claim(), world.namespace)
    allocation = bodies.allocation()
    allocation["devices"]["results"][0]["request"] = "other"
    with pytest.raises(RefusedError, match="request"):
        await kube.patch(
            CLAIMS,
            "c",
            {"status": {"allocation": allocation}},
            world.namespace,
            subresource="status",
        )


async def test_a_status_that_dray_writes_is_read_back_equal(world, kube, bodies) -> None:
    await kube.create(CLAIMS, bodies.claim(), world.namespace)
    device = AllocatedDevice(
        request="gpu",
        id=DeviceId("gpus.example.com", "node-1", "gpu-0"),
        share_id="0b1f6d5e-0000-4000-8000-000000000002",
        consumed={"gpus.example.com/vram": "16Gi", "gpus.example.com/tflops": "100"},
    )
    config = OpaqueConfig("gpus.example.com", {"kind": "GPULimits"}, ("gpu",))
    wanted = Allocation((device,), node="node-1", config=(config,))
    status = status_to(wanted, timestamp_unix_s=1_700_000_000.0)
    after = await kube.patch(CLAIMS, "c", {"status": status}, world.namespace, subresource="status")
    keeps = await probe(kube, world.namespace, revision=1)
    if not keeps.consumable_capacity:
        wanted = replace(wanted, devices=(replace(device, share_id=None, consumed={}),))
    assert allocation_from(after["status"]["allocation"]) == wanted
    assert claim_from(after).allocation == wanted
    stamp = after["status"]["allocation"].get("allocationTimestamp")
    stamps = keeps.allocation_timestamp or "1.35." in keeps.version  # there without the gate
    assert stamp == ("2023-11-14T22:13:20Z" if stamps else None)
    again = await kube.patch(CLAIMS, "c", {"status": status}, world.namespace, subresource="status")
    assert again["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def test_a_pod_is_bound_once(world, kube, bodies) -> None:
    node = world.unique("n")
    await world.create(NODES, {"metadata": {"name": node}})
    made = await kube.create(PODS, bodies.pod(), world.namespace)
    uid = made["metadata"]["uid"]
    await kube.bind("p", world.namespace, uid=uid, node=node)
    found = await kube.get(PODS, "p", world.namespace)
    assert pod_from(found).node == node
    assert any(
        condition["type"] == "PodScheduled" and condition["status"] == "True"
        for condition in found["status"]["conditions"]
    )
    with pytest.raises(ConflictError):
        await kube.bind("p", world.namespace, uid=uid, node=node)
    await kube.delete(PODS, "p", world.namespace, grace_period_s=0)


async def test_a_pod_of_another_uid_is_not_bound(world, kube, bodies) -> None:
    await kube.create(PODS, bodies.pod(), world.namespace)
    with pytest.raises(ConflictError):
        await kube.bind("p", world.namespace, uid=USER["uid"], node="n")
    with pytest.raises(NotFoundError):
        await kube.bind("nothing", world.namespace, uid=USER["uid"], node="n")


async def test_a_pod_that_moved_is_not_bound_by_an_earlier_revision(world, kube, bodies) -> None:
    seen = pod_from(await kube.create(PODS, bodies.pod(), world.namespace))
    note = {"metadata": {"annotations": {"example.com/a": "b"}}}
    now = pod_from(await kube.patch(PODS, "p", note, world.namespace))
    wanted = {"uid": seen.uid, "node": "n"}
    with pytest.raises(ConflictError):
        await kube.bind("p", world.namespace, resource_version=seen.resource_version, **wanted)
    await kube.bind("p", world.namespace, resource_version=now.resource_version, **wanted)
    assert pod_from(await kube.get(PODS, "p", world.namespace)).node == "n"
    await kube.delete(PODS, "p", world.namespace, grace_period_s=0)


async def test_a_gated_pod_is_not_bound(world, kube, bodies) -> None:
    gates = [{"name": "example.com/a"}]
    made = await kube.create(PODS, bodies.pod(schedulingGates=gates), world.namespace)
    with pytest.raises(ConflictError):
        await kube.bind("p", world.namespace, uid=made["metadata"]["uid"], node="n")


async def test_a_bound_pod_is_deleted_gracefully(world, kube, bodies, is_gone) -> None:
    node = world.unique("n")
    await world.create(NODES, {"metadata": {"name": node}})
    made = await kube.create(PODS, bodies.pod(), world.namespace)
    await kube.bind("p", world.namespace, uid=made["metadata"]["uid"], node=node)
    await kube.delete(PODS, "p", world.namespace)
    found = await kube.get(PODS, "p", world.namespace)
    assert found["metadata"]["deletionTimestamp"]
    assert pod_from(found).deleting
    await kube.delete(PODS, "p", world.namespace, grace_period_s=0)
    await is_gone(kube, PODS, "p", world.namespace)


async def test_an_evicted_pod_goes(world, kube, bodies, is_gone) -> None:
    uid = (await kube.create(PODS, bodies.pod(), world.namespace))["metadata"]["uid"]
    await kube.evict("p", world.namespace, uid=uid)
    await is_gone(kube, PODS, "p", world.namespace)
    with pytest.raises(NotFoundError):
        await kube.evict("p", world.namespace, uid=uid)
    await kube.create(PODS, bodies.pod(), world.namespace)
    with pytest.raises(ConflictError, match=r"UID|uid"):
        await kube.evict("p", world.namespace, uid=uid)
