"""Server-side apply: who owns a field, and who is refused it."""

from typing import Any

import pytest


def claim(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "one", **metadata},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {
                            "deviceClassName": "x",
                            "allocationMode": "ExactCount",
                            "count": 1,
                        },
                    }
                ]
            }
        },
    }


def labelled(**labels: str) -> dict[str, Any]:
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return kind | {"metadata": {"name": "one", "labels": labels}}


async def apply(api: Any, body: Any, manager: str, **query: Any) -> Any:
    query = {"fieldManager": manager, **query}
    return await api.patch("resourceclaims", "one", body, kind="apply", **query)


def managers(obj: Any) -> list[str]:
    entries = obj["metadata"].get("managedFields", [])
    return sorted(entry["manager"] for entry in entries if entry["operation"] == "Apply")


async def test_two_managers_share_an_object(api: Any) -> None:
    await apply(api, claim(labels={"a": "1"}), "me")

    after = await apply(api, labelled(b="2"), "you")

    assert after["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert managers(after) == ["me", "you"]


async def test_a_field_of_another_manager_is_a_conflict(api: Any, refused: Any) -> None:
    await apply(api, claim(labels={"a": "1"}), "me")

    with pytest.raises(refused) as caught:
        await apply(api, labelled(a="2"), "you")

    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "me": .metadata.labels.a'
    )
    [cause] = caught.value.status["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".metadata.labels.a")


async def test_two_fields_of_another_manager_are_two_conflicts(api: Any, refused: Any) -> None:
    await apply(api, claim(labels={"a": "1", "b": "1"}), "me")

    with pytest.raises(refused) as caught:
        await apply(api, labelled(a="2", b="2"), "you")

    fields = [field for field, _ in caught.value.causes()]
    assert sorted(fields) == [".metadata.labels.a", ".metadata.labels.b"]


async def test_the_same_value_is_not_a_conflict(api: Any) -> None:
    await apply(api, claim(labels={"a": "1"}), "me")

    after = await apply(api, labelled(a="1"), "you")

    assert managers(after) == ["me", "you"]


async def test_force_takes_a_field_over(api: Any, refused: Any) -> None:
    await apply(api, claim(labels={"a": "1"}), "me")

    after = await apply(api, labelled(a="2"), "you", force="true")

    assert after["metadata"]["labels"] == {"a": "2"}
    with pytest.raises(refused) as caught:
        await apply(api, claim(labels={"a": "3"}), "me")
    assert caught.value.code == 409


async def test_a_field_that_its_manager_applies_no_more_goes(api: Any) -> None:
    await apply(api, claim(labels={"a": "1", "b": "1"}), "me")

    after = await apply(api, claim(labels={"a": "1"}), "me")

    assert after["metadata"]["labels"] == {"a": "1"}


async def test_a_field_that_another_manager_applies_too_stays(api: Any) -> None:
    await apply(api, claim(labels={"a": "1"}), "me")
    await apply(api, labelled(a="1"), "you")

    after = await apply(api, claim(), "me")

    assert after["metadata"]["labels"] == {"a": "1"}


async def test_an_applied_spec_is_immutable_too(api: Any, refused: Any) -> None:
    await apply(api, claim(), "me")
    changed = claim()
    changed["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2

    with pytest.raises(refused) as caught:
        await apply(api, changed, "me")

    assert caught.value.code == 422
    assert [field for field, _ in caught.value.causes()] == ["spec"]


async def test_an_apply_of_another_version_than_stored_is_a_conflict(
    api: Any, refused: Any
) -> None:
    made = await apply(api, claim(), "me")
    await api.patch("resourceclaims", "one", {"metadata": {"labels": {"a": "1"}}})
    stale = claim(resourceVersion=made["metadata"]["resourceVersion"])

    with pytest.raises(refused) as caught:
        await apply(api, stale, "me")

    assert caught.value.code == 409


async def test_an_apply_with_a_version_makes_what_is_not_there(api: Any) -> None:
    made = await apply(api, claim(resourceVersion="1"), "me")

    assert made["metadata"]["resourceVersion"] != "1"


async def test_an_apply_with_managed_fields_is_refused(api: Any, refused: Any) -> None:
    entry = {"manager": "me", "operation": "Apply", "apiVersion": "resource.k8s.io/v1"}

    with pytest.raises(refused) as caught:
        await apply(api, claim(managedFields=[entry]), "me")

    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


async def test_an_apply_names_its_kind(api: Any, refused: Any) -> None:
    body = claim()
    del body["kind"]

    with pytest.raises(refused) as caught:
        await apply(api, body, "me")

    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


async def test_a_status_is_applied_by_itself(api: Any) -> None:
    await apply(api, claim(), "me")
    body = labelled() | {"status": {"allocation": api.allocation()}}
    body["spec"] = {"devices": {"requests": None}}

    query = {"fieldManager": "driver"}
    after = await api.patch("resourceclaims", "one", body, "status", kind="apply", **query)

    assert after["status"]["allocation"] == api.allocation()
    assert len(after["spec"]["devices"]["requests"]) == 1
