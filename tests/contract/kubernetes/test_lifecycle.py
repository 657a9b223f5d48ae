"""Finalizers, owners, namespaces."""

from typing import Any

import pytest

HOLD = "example.com/hold"


def owned(name: str, owner: dict[str, Any], **more: Any) -> dict[str, Any]:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **more,
    }
    return {"metadata": {"name": name, "ownerReferences": [reference]}}


async def deleting(api: Any, name: str) -> bool:
    return "deletionTimestamp" in (await api.get("configmaps", name))["metadata"]


async def test_a_finalizer_holds_an_object_until_it_is_removed(api: Any) -> None:
    await api.create("configmaps", {"metadata": {"name": "one", "finalizers": [HOLD]}})

    held = await api.delete("configmaps", "one")

    assert held["metadata"]["deletionTimestamp"]
    await api.patch("configmaps", "one", {"metadata": {"finalizers": None}})
    assert "one" not in await api.names("configmaps")


async def test_a_second_deletion_changes_nothing(api: Any) -> None:
    await api.create("configmaps", {"metadata": {"name": "one", "finalizers": [HOLD]}})
    first = await api.delete("configmaps", "one")

    second = await api.delete("configmaps", "one")

    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    await api.patch("configmaps", "one", {"metadata": {"finalizers": None}})


async def test_no_finalizer_is_added_to_what_is_being_deleted(api: Any, refused: Any) -> None:
    await api.create("configmaps", {"metadata": {"name": "one", "finalizers": [HOLD]}})
    await api.delete("configmaps", "one")
    more = {"metadata": {"finalizers": [HOLD, "example.com/more"]}}

    with pytest.raises(refused) as caught:
        await api.patch("configmaps", "one", more)

    expected = (
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"example.com/more"}'
    )
    assert ("metadata.finalizers", expected) in caught.value.causes()
    await api.patch("configmaps", "one", {"metadata": {"finalizers": None}})


async def test_a_strategic_patch_adds_a_finalizer(api: Any) -> None:
    await api.create("resourceclaims", api.claim("one"))
    for name in (HOLD, "example.com/more"):
        patch = {"metadata": {"finalizers": [name]}}
        after = await api.patch("resourceclaims", "one", patch, kind="strategic")

    assert sorted(after["metadata"]["finalizers"]) == [HOLD, "example.com/more"]
    await api.patch("resourceclaims", "one", {"metadata": {"finalizers": None}})


async def test_a_deleted_object_is_reported(api: Any) -> None:
    made = await api.create("configmaps", {"metadata": {"name": "one"}})

    answer = await api.delete("configmaps", "one")

    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    expected = {"name": "one", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert answer["details"] == expected


async def test_dependents_follow_their_owner(api: Any) -> None:
    owner = await api.create("configmaps", {"metadata": {"name": "owner"}})
    await api.create("configmaps", owned("child", owner))

    await api.delete("configmaps", "owner")

    await api.gone("configmaps", "child")


async def test_a_dependent_stays_while_it_has_another_owner(api: Any) -> None:
    first = await api.create("configmaps", {"metadata": {"name": "first"}})
    second = await api.create("configmaps", {"metadata": {"name": "second"}})
    child = owned("child", first)
    child["metadata"]["ownerReferences"] += owned("x", second)["metadata"]["ownerReferences"]
    await api.create("configmaps", child)

    await api.delete("configmaps", "first")

    async def only_the_second_owns_it() -> bool:
        owners = (await api.get("configmaps", "child"))["metadata"]["ownerReferences"]
        return [owner["name"] for owner in owners] == ["second"]

    await api.until(only_the_second_owns_it)


async def test_the_child_of_an_owner_that_never_was_is_collected(api: Any) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000001"}}
    await api.create("configmaps", owned("child", ghost))

    await api.gone("configmaps", "child")


async def test_orphans_stay(api: Any) -> None:
    owner = await api.create("configmaps", {"metadata": {"name": "owner"}})
    await api.create("configmaps", owned("child", owner))

    await api.delete("configmaps", "owner", {"propagationPolicy": "Orphan"})

    await api.gone("configmaps", "owner")
    child = await api.get("configmaps", "child")
    assert "ownerReferences" not in child["metadata"]


async def test_a_foreground_deletion_waits_for_dependents(api: Any) -> None:
    owner = await api.create("configmaps", {"metadata": {"name": "owner"}})
    child = owned("child", owner, blockOwnerDeletion=True)
    child["metadata"]["finalizers"] = [HOLD]
    await api.create("configmaps", child)

    answer = await api.delete("configmaps", "owner", {"propagationPolicy": "Foreground"})

    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    await api.until(lambda: deleting(api, "child"))
    assert "owner" in await api.names("configmaps")
    await api.patch("configmaps", "child", {"metadata": {"finalizers": None}})
    await api.gone("configmaps", "owner")


async def test_deleting_a_namespace_deletes_its_objects(api: Any, refused: Any) -> None:
    await api.create("configmaps", {"metadata": {"name": "one", "finalizers": [HOLD]}})

    answer = await api.delete("namespaces", api.namespace)

    assert answer["status"]["phase"] == "Terminating"
    with pytest.raises(refused) as caught:
        await api.create("configmaps", {"metadata": {"name": "two"}})
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    assert "because it is being terminated" in caught.value.message
    await api.until(lambda: deleting(api, "one"))
    await api.patch("configmaps", "one", {"metadata": {"finalizers": None}})
    await api.gone("namespaces", api.namespace)


async def test_applying_twice_owns_and_removes_fields(api: Any) -> None:
    def config(**data: str) -> dict[str, Any]:
        meta = {"name": "one", "labels": {"who": "me"}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}

    await api.patch("configmaps", "one", config(a="1", b="2"), kind="apply", fieldManager="me")

    after = await api.patch("configmaps", "one", config(a="3"), kind="apply", fieldManager="me")

    assert after["data"] == {"a": "3"}
    [entry] = after["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("me", "Apply")
    expected = {"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:who": {}}}}
    assert entry["fieldsV1"] == expected


async def test_applying_over_another_manager_conflicts_unless_forced(
    api: Any, refused: Any
) -> None:
    def config(value: str) -> dict[str, Any]:
        meta = {"name": "one"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": value}}

    await api.patch("configmaps", "one", config("1"), kind="apply", fieldManager="me")

    with pytest.raises(refused) as caught:
        await api.patch("configmaps", "one", config("2"), kind="apply", fieldManager="you")

    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    expected = 'Apply failed with 1 conflict: conflict with "me": .data.a'
    assert caught.value.message == expected
    query = {"fieldManager": "you", "force": "true"}
    after = await api.patch("configmaps", "one", config("2"), kind="apply", **query)
    assert after["data"] == {"a": "2"}


async def test_applying_needs_a_manager(api: Any, refused: Any) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}

    with pytest.raises(refused) as caught:
        await api.patch("configmaps", "one", body, kind="apply")

    assert caught.value.code == 422
    assert caught.value.causes() == [
        ("fieldManager", "Required value: is required for apply patch")
    ]


async def test_new_items_of_a_strategic_patch_come_first(api: Any) -> None:
    await api.create("pods", api.pod("one", schedulingGates=[{"name": "example.com/g"}]))

    patch = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    after = await api.patch("pods", "one", patch, "status", kind="strategic")

    kinds = [condition["type"] for condition in after["status"]["conditions"]]
    assert kinds == ["Ready", "PodScheduled"]
