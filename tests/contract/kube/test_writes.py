"""Creation, updates, patches and deletion: what conflicts, what is refused."""

import pytest

from dray.kube.ports import (
    CLAIMS,
    LEASES,
    PODS,
    TEMPLATES,
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    RefusedError,
)


async def test_a_created_object_has_an_identity(world, kube, bodies) -> None:
    made = await kube.create(PODS, bodies.pod(), world.namespace)
    metadata = made["metadata"]
    assert metadata["namespace"] == world.namespace
    assert metadata["uid"]
    assert int(metadata["resourceVersion"]) > 0
    assert made["status"]["phase"] == "Pending"
    assert await kube.get(PODS, "p", world.namespace) == made


async def test_the_namespace_may_stand_in_the_object(world, kube, bodies) -> None:
    body = bodies.pod()
    body["metadata"]["namespace"] = world.namespace
    assert (await kube.create(PODS, body))["metadata"]["namespace"] == world.namespace


async def test_a_name_is_generated(world, kube, bodies) -> None:
    body = bodies.pod()
    body["metadata"] = {"generateName": "p-"}
    names = {(await kube.create(PODS, body, world.namespace))["metadata"]["name"] for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("p-") and len(name) > 2 for name in names)


async def test_an_object_of_more_than_a_mebibyte_is_written(world, kube, bodies) -> None:
    claim = bodies.claim()
    selector = {"cel": {"expression": f"'{'y' * 9_900}' != device.driver"}}
    exactly = claim["spec"]["devices"]["requests"][0]["exactly"] | {"selectors": [selector] * 32}
    claim["spec"]["devices"]["requests"] = [
        {"name": f"gpu-{n}", "exactly": exactly} for n in range(4)
    ]
    made = await kube.create(CLAIMS, claim, world.namespace)
    assert await kube.get(CLAIMS, made["metadata"]["name"], world.namespace) == made


async def test_a_second_object_of_a_name_is_refused(world, kube, bodies) -> None:
    await kube.create(PODS, bodies.pod(), world.namespace)
    with pytest.raises(AlreadyExistsError, match="p"):
        await kube.create(PODS, bodies.pod(), world.namespace)


async def test_a_missing_object_is_not_found(world, kube) -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        await kube.get(PODS, "nothing", world.namespace)
    with pytest.raises(NotFoundError):
        await kube.patch(PODS, "nothing", {"metadata": {}}, world.namespace)
    await kube.delete(PODS, "nothing", world.namespace)


async def test_a_dry_run_leaves_nothing(world, kube, bodies) -> None:
    made = await kube.create(CLAIMS, bodies.claim(), world.namespace, dry_run=True)
    assert made["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] == "ExactCount"
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    with pytest.raises(NotFoundError):
        await kube.get(CLAIMS, "c", world.namespace)


async def test_a_stale_update_conflicts(world, kube, bodies) -> None:
    stale = await kube.create(LEASES, {"metadata": {"name": "l"}, "spec": {}}, world.namespace)
    stale["spec"]["holderIdentity"] = "a"
    fresh = await kube.update(LEASES, stale)
    assert fresh["metadata"]["resourceVersion"] != stale["metadata"]["resourceVersion"]
    stale["spec"]["holderIdentity"] = "b"
    with pytest.raises(ConflictError):
        await kube.update(LEASES, stale)
    found = await kube.get(LEASES, "l", world.namespace)
    assert found["spec"]["holderIdentity"] == "a"


async def test_a_merge_patch_is_fenced_by_its_revision(world, kube, bodies) -> None:
    made = await kube.create(CLAIMS, bodies.claim(), world.namespace)
    version = made["metadata"]["resourceVersion"]

    def patch(value: str) -> dict:
        return {"metadata": {"resourceVersion": version, "annotations": {"example.com/a": value}}}

    await kube.patch(CLAIMS, "c", patch("1"), world.namespace)
    with pytest.raises(ConflictError):
        await kube.patch(CLAIMS, "c", patch("2"), world.namespace)
    removed = {"metadata": {"annotations": {"example.com/a": None}}}
    after = await kube.patch(CLAIMS, "c", removed, world.namespace)
    assert "example.com/a" not in after["metadata"].get("annotations", {})


async def test_a_patch_that_changes_nothing_moves_no_revision(world, kube, bodies) -> None:
    made = await kube.create(CLAIMS, bodies.claim(), world.namespace)
    patch = {"metadata": {"labels": {"a": "b"}}}
    first = await kube.patch(CLAIMS, "c", patch, world.namespace)
    second = await kube.patch(CLAIMS, "c", patch, world.namespace)
    assert first["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_json_patch_lifts_one_gate_and_conflicts_when_it_is_gone(
    world, kube, bodies
) -> None:
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    await kube.create(PODS, bodies.pod(schedulingGates=gates), world.namespace)
    patch = [
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": "example.com/a"},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    after = await kube.patch(PODS, "p", patch, world.namespace, kind="json")
    assert after["spec"]["schedulingGates"] == [{"name": "example.com/b"}]
    with pytest.raises(ConflictError):
        await kube.patch(PODS, "p", patch, world.namespace, kind="json")


async def test_a_gate_can_not_be_added(world, kube, bodies) -> None:
    await kube.create(PODS, bodies.pod(), world.namespace)
    patch = {"spec": {"schedulingGates": [{"name": "example.com/a"}]}}
    with pytest.raises(RefusedError) as caught:
        await kube.patch(PODS, "p", patch, world.namespace)
    assert caught.value.status == 422
    assert "schedulingGates" in str(caught.value)


async def test_a_strategic_patch_joins_finalizers(world, kube, bodies) -> None:
    body = bodies.claim()
    body["metadata"]["finalizers"] = ["example.com/a"]
    await kube.create(CLAIMS, body, world.namespace)
    patch = {"metadata": {"finalizers": ["example.com/b"]}}
    after = await kube.patch(CLAIMS, "c", patch, world.namespace, kind="strategic")
    assert sorted(after["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    merged = await kube.patch(
        CLAIMS, "c", {"metadata": {"finalizers": None}}, world.namespace, kind="merge"
    )
    assert not merged["metadata"].get("finalizers")


async def test_apply_makes_and_changes(world, kube) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a"},
    }
    await kube.patch(LEASES, "l", lease, world.namespace, kind="apply")
    lease["spec"] = {"holderIdentity": "b"}
    after = await kube.patch(LEASES, "l", lease, world.namespace, kind="apply")
    assert after["spec"]["holderIdentity"] == "b"


async def test_specs_of_claims_and_templates_are_immutable(world, kube, bodies) -> None:
    spec = bodies.claim()["spec"]
    await kube.create(CLAIMS, bodies.claim(), world.namespace)
    template = {"metadata": {"name": "t"}, "spec": {"spec": spec}}
    await kube.create(TEMPLATES, template, world.namespace)
    changed = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "other"}}]}}
    for resource, name, patch in (
        (CLAIMS, "c", {"spec": changed}),
        (TEMPLATES, "t", {"spec": {"spec": changed}}),
    ):
        with pytest.raises(RefusedError, match="immutable") as caught:
            await kube.patch(resource, name, patch, world.namespace)
        assert caught.value.status == 422


async def test_a_claim_without_a_class_is_refused(world, kube) -> None:
    request = {"name": "gpu", "exactly": {}}
    body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    with pytest.raises(RefusedError, match="deviceClassName"):
        await kube.create(CLAIMS, body, world.namespace)


async def test_deletion_keeps_its_preconditions(world, kube, bodies) -> None:
    made = await kube.create(CLAIMS, bodies.claim(), world.namespace)
    with pytest.raises(ConflictError):
        await kube.delete(CLAIMS, "c", world.namespace, uid="0000")
    with pytest.raises(ConflictError):
        await kube.delete(CLAIMS, "c", world.namespace, resource_version=1)
    await kube.delete(
        CLAIMS,
        "c",
        world.namespace,
        uid=made["metadata"]["uid"],
        resource_version=int(made["metadata"]["resourceVersion"]),
    )
    with pytest.raises(NotFoundError):
        await kube.get(CLAIMS, "c", world.namespace)


async def test_a_finalizer_holds_a_deletion_up(world, kube, bodies, is_gone) -> None:
    body = bodies.claim()
    body["metadata"]["finalizers"] = ["example.com/a"]
    await kube.create(CLAIMS, body, world.namespace)
    await kube.delete(CLAIMS, "c", world.namespace)
    found = await kube.get(CLAIMS, "c", world.namespace)
    assert found["metadata"]["deletionTimestamp"]
    await kube.patch(CLAIMS, "c", {"metadata": {"finalizers": None}}, world.namespace)
    await is_gone(kube, CLAIMS, "c", world.namespace)


async def test_the_server_tells_its_version(kube) -> None:
    assert (await kube.version()).startswith("v1.")
