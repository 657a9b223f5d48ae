"""Patches and applied configurations, by themselves."""

from typing import Any

import pytest

from dray_sandbox.apiserver.apply import apply_patch, built_in_keys, schema_keys
from dray_sandbox.apiserver.patches import json_patch, merge_patch, strategic_patch
from dray_sandbox.apiserver.status import ApiError


def pod(*containers: Any, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}


A, B = {"name": "a", "image": "1"}, {"name": "b", "image": "1"}


def test_merge_replaces_lists_and_drops_nulls() -> None:
    assert merge_patch({"a": [1], "b": 1, "c": {"d": 1}}, {"a": [2], "b": None, "c": {"e": 2}}) == {
        "a": [2],
        "c": {"d": 1, "e": 2},
    }


def test_strategic_merges_lists_by_key() -> None:
    patch = {"spec": {"containers": [{"name": "b", "image": "2"}, {"name": "c"}]}}

    merged = strategic_patch(pod(A, B), patch)

    # The patch's items keep their order and new ones come first, as the real server has it.
    assert merged["spec"]["containers"] == [A, {"name": "b", "image": "2"}, {"name": "c"}]


def test_strategic_deletes_and_replaces() -> None:
    gone = {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}
    new = {"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}}

    assert strategic_patch(pod(A, B), gone)["spec"]["containers"] == [B]
    assert strategic_patch(pod(A, B), new)["spec"]["containers"] == [{"name": "c"}]


def test_strategic_keeps_the_order_of_the_patch() -> None:
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "b", "image": "2"}],
        }
    }

    merged = strategic_patch(pod(A, B), patch)

    assert [item["name"] for item in merged["spec"]["containers"]] == ["b", "a"]


def test_strategic_merges_finalizers_and_deletes_from_them() -> None:
    target = {"metadata": {"finalizers": ["x"]}}
    more = strategic_patch(target, {"metadata": {"finalizers": ["y"]}})
    less = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}

    assert more["metadata"]["finalizers"] == ["y", "x"]
    assert strategic_patch(more, less)["metadata"]["finalizers"] == ["y"]


def test_strategic_replaces_lists_without_a_key() -> None:
    target = pod(tolerations=[{"key": "a"}])

    merged = strategic_patch(target, {"spec": {"tolerations": [{"key": "b"}]}})

    assert merged["spec"]["tolerations"] == [{"key": "b"}]


def test_new_items_of_a_strategic_patch_come_first() -> None:
    target = {"status": {"conditions": [{"type": "PodScheduled"}]}}

    merged = strategic_patch(target, {"status": {"conditions": [{"type": "Ready"}]}})

    assert [item["type"] for item in merged["status"]["conditions"]] == ["Ready", "PodScheduled"]


def test_a_json_patch_leaves_its_target_alone() -> None:
    target = {"a": 1}

    assert json_patch(target, [{"op": "add", "path": "/b", "value": 2}]) == {"a": 1, "b": 2}
    assert target == {"a": 1}


def test_a_json_patch_that_cannot_be_applied_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        json_patch({}, [{"op": "remove", "path": "/a"}])

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


def applied(current: Any, config: Any, manager: str, force: bool = False) -> Any:
    return apply_patch(
        current,
        config,
        manager=manager,
        force=force,
        keys=built_in_keys,
        now="2026-01-01T00:00:00Z",
    )


def test_two_managers_own_different_list_items() -> None:
    first = applied(None, pod(A), "one")
    both = applied(first, pod(B), "two")
    assert both["spec"]["containers"] == [A, B]

    # A manager that stops naming an item removes it, and only that.
    after = applied(both, {"metadata": {"name": "p"}}, "one")

    assert after["spec"]["containers"] == [B]


def test_equal_values_are_owned_together() -> None:
    first = applied(None, {"metadata": {"name": "p"}, "data": {"a": "1"}}, "one")
    both = applied(first, {"metadata": {"name": "p"}, "data": {"a": "1"}}, "two")

    after = applied(both, {"metadata": {"name": "p"}}, "one")

    assert after["data"] == {"a": "1"}


def test_force_takes_ownership() -> None:
    first = applied(None, {"metadata": {"name": "p"}, "data": {"a": "1"}}, "one")
    taken = applied(first, {"metadata": {"name": "p"}, "data": {"a": "2"}}, "two", force=True)

    assert [entry["manager"] for entry in taken["metadata"]["managedFields"]] == ["two"]
    with pytest.raises(ApiError):
        applied(taken, {"metadata": {"name": "p"}, "data": {"a": "3"}}, "one")


def test_applying_needs_a_manager() -> None:
    with pytest.raises(ApiError) as caught:
        applied(None, pod(A), "")

    assert caught.value.code == 400


def test_a_schema_may_say_how_its_lists_are_merged() -> None:
    conditions = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    keys = schema_keys({"properties": {"status": {"properties": {"conditions": conditions}}}})

    assert keys(("status", "conditions")) == "type"
    assert keys(("status", "others")) is None


def test_ports_of_a_container_are_owned_one_by_one() -> None:
    def config(port: int) -> dict[str, Any]:
        return pod({"name": "a", "ports": [{"containerPort": port}]})

    both = applied(applied(None, config(1), "one"), config(2), "two")

    assert both["spec"]["containers"][0]["ports"] == [{"containerPort": 1}, {"containerPort": 2}]
