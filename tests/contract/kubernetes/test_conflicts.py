"""Who loses when two write at once."""

from typing import Any

import pytest

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


async def test_a_second_object_of_one_name_is_refused(api: Any, refused: Any) -> None:
    await api.create("configmaps", {"metadata": {"name": "one"}})

    with pytest.raises(refused) as caught:
        await api.create("configmaps", {"metadata": {"name": "one"}})

    assert (caught.value.code, caught.value.reason) == (409, "AlreadyExists")
    assert caught.value.message == 'configmaps "one" already exists'
    assert caught.value.status["details"] == {"name": "one", "kind": "configmaps"}


async def test_a_put_with_a_stale_version_is_refused(api: Any, refused: Any) -> None:
    first = await api.create("configmaps", {"metadata": {"name": "one"}, "data": {"a": "1"}})
    await api.put("configmaps", first | {"data": {"a": "2"}})

    with pytest.raises(refused) as caught:
        await api.put("configmaps", first | {"data": {"a": "3"}})

    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    expected = f'Operation cannot be fulfilled on configmaps "one": {MODIFIED}'
    assert caught.value.message == expected


@pytest.mark.parametrize("kind", ["merge", "strategic"])
async def test_a_patch_that_carries_a_stale_version_is_refused(
    api: Any, refused: Any, kind: str
) -> None:
    first = await api.create("resourceclaims", api.claim("one"))
    version = first["metadata"]["resourceVersion"]
    await api.patch("resourceclaims", "one", {"metadata": {"labels": {"a": "1"}}})
    patch = {"metadata": {"resourceVersion": version, "labels": {"a": "2"}}}

    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", patch, kind=kind)

    assert (caught.value.code, caught.value.reason) == (409, "Conflict")


async def test_a_stale_status_patch_is_refused(api: Any, refused: Any) -> None:
    first = await api.create("resourceclaims", api.claim("one"))
    await api.patch("resourceclaims", "one", {"metadata": {"labels": {"a": "1"}}})
    version = first["metadata"]["resourceVersion"]
    patch = {
        "metadata": {"resourceVersion": version},
        "status": {"allocation": api.allocation()},
    }

    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", patch, "status")

    assert caught.value.code == 409


async def test_a_put_without_a_version_overwrites_where_the_kind_allows_it(api: Any) -> None:
    await api.create("configmaps", {"metadata": {"name": "one"}})

    changed = await api.put("configmaps", {"metadata": {"name": "one"}, "data": {"a": "2"}})

    assert changed["data"] == {"a": "2"}


async def test_a_lease_needs_a_version_to_be_replaced(api: Any, refused: Any) -> None:
    await api.create("leases", {"metadata": {"name": "one"}, "spec": {}})
    lease = {"metadata": {"name": "one"}, "spec": {"holderIdentity": "me"}}

    with pytest.raises(refused) as caught:
        await api.put("leases", lease)

    assert caught.value.code == 422
    expected = [("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")]
    assert caught.value.causes() == expected


async def test_a_write_that_changes_nothing_keeps_the_version(api: Any) -> None:
    first = await api.create("resourceclaims", api.claim("one"))

    again = await api.put("resourceclaims", first)

    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_versions_grow_over_all_resources(api: Any) -> None:
    one = await api.create("configmaps", {"metadata": {"name": "one"}})
    two = await api.create("resourceclaims", api.claim("two"))

    assert int(two["metadata"]["resourceVersion"]) > int(one["metadata"]["resourceVersion"])


async def test_a_put_of_another_uid_is_refused(api: Any, refused: Any) -> None:
    first = await api.create("configmaps", {"metadata": {"name": "one"}})
    other = "00000000-0000-0000-0000-000000000001"

    with pytest.raises(refused) as caught:
        await api.put("configmaps", {"metadata": {"name": "one", "uid": other}})

    assert caught.value.code == 409
    uid = first["metadata"]["uid"]
    expected = f"Precondition failed: UID in precondition: {other}, UID in object meta: {uid}"
    assert caught.value.message.endswith(expected)


async def test_a_deletion_checks_its_preconditions(api: Any, refused: Any) -> None:
    first = await api.create("configmaps", {"metadata": {"name": "one"}})
    other = "00000000-0000-0000-0000-000000000001"

    with pytest.raises(refused) as caught:
        await api.delete("configmaps", "one", {"preconditions": {"uid": other}})

    assert caught.value.code == 409
    right = {"preconditions": {"uid": first["metadata"]["uid"]}}
    await api.delete("configmaps", "one", right)
    assert await api.names("configmaps", fieldSelector="metadata.name=one") == []


async def test_generate_name_adds_five_characters(api: Any) -> None:
    made = await api.create("configmaps", {"metadata": {"generateName": "thing-"}})

    name = made["metadata"]["name"]
    assert name.startswith("thing-")
    assert len(name) == len("thing-") + 5


async def test_an_object_without_any_name_is_refused(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.create("configmaps", {"metadata": {}})

    assert caught.value.code == 422
    expected = [("metadata.name", "Required value: name or generateName is required")]
    assert caught.value.causes() == expected


async def test_a_namespace_must_exist(api: Any, refused: Any) -> None:
    api.namespace = "no-such-namespace"

    with pytest.raises(refused) as caught:
        await api.create("configmaps", {"metadata": {"name": "one"}})

    assert caught.value.code == 404
    assert caught.value.message == 'namespaces "no-such-namespace" not found'


async def test_a_missing_object_is_not_found(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.get("resourceclaims", "none")

    assert (caught.value.code, caught.value.reason) == (404, "NotFound")
    assert caught.value.message == 'resourceclaims.resource.k8s.io "none" not found'


async def test_a_dry_run_answers_and_stores_nothing(api: Any) -> None:
    made = await api.create("configmaps", {"metadata": {"name": "dry"}}, dryRun="All")

    assert made["metadata"]["uid"]
    assert "dry" not in await api.names("configmaps")
