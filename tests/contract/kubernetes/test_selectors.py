"""Lists: selectors and pages."""

from typing import Any

import pytest


@pytest.fixture
async def three(api: Any) -> None:
    labels = {"a": {"app": "x", "tier": "1"}, "b": {"app": "x"}, "c": {"app": "y"}}
    for name, wanted in labels.items():
        await api.create("configmaps", {"metadata": {"name": name, "labels": wanted}})


SELECTORS = [
    ("app=x", ["a", "b"]),
    ("app==y", ["c"]),
    ("app!=x", ["c"]),
    ("tier", ["a"]),
    ("app,!tier", ["b", "c"]),
    ("app in (x, y),tier notin (1)", ["b", "c"]),
    ("tier>0", ["a"]),
    ("nope", []),
]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(("selector", "expected"), SELECTORS)
async def test_labels_select(api: Any, selector: str, expected: list[str]) -> None:
    wanted = f"kubernetes.io/x!=y,{selector}"

    assert await api.names("configmaps", labelSelector=wanted) == expected


@pytest.mark.usefixtures("three")
async def test_names_select(api: Any) -> None:
    assert await api.names("configmaps", fieldSelector="metadata.name=b") == ["b"]


async def test_pods_are_selected_by_node_and_phase(api: Any) -> None:
    for name in ("one", "two"):
        await api.create("pods", api.pod(name))
    await api.bind("two", "node-1")

    assert await api.names("pods", fieldSelector="spec.nodeName=node-1") == ["two"]
    assert await api.names("pods", fieldSelector="spec.nodeName=") == ["one"]
    selector = "status.phase=Pending,spec.nodeName!="
    assert await api.names("pods", fieldSelector=selector) == ["two"]


async def test_an_unknown_field_is_refused(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.get("configmaps", fieldSelector="data.x=y")

    assert caught.value.code == 400
    assert "data.x" in caught.value.message


async def test_a_broken_selector_is_refused(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.get("configmaps", labelSelector="a in b")

    assert caught.value.code == 400


@pytest.mark.usefixtures("three")
async def test_pages_show_one_consistent_list(api: Any) -> None:
    first = await api.get("configmaps", limit=2, labelSelector="app")
    await api.create("configmaps", {"metadata": {"name": "b2", "labels": {"app": "x"}}})
    await api.delete("configmaps", "c")

    token = first["metadata"]["continue"]
    second = await api.get("configmaps", limit=2, labelSelector="app", **{"continue": token})

    seen = [item["metadata"]["name"] for item in first["items"] + second["items"]]
    assert seen == ["a", "b", "c"]
    assert not second["metadata"].get("continue")
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_version_from_the_future_times_out(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.get("configmaps", resourceVersion="999999999")

    assert (caught.value.code, caught.value.reason) == (504, "Timeout")
    assert caught.value.message.startswith("Timeout: Too large resource version: 999999999")


async def test_items_of_built_in_lists_carry_no_type(api: Any) -> None:
    await api.create("resourceclaims", api.claim("one"))

    found = await api.get("resourceclaims")

    assert (found["kind"], found["apiVersion"]) == ("ResourceClaimList", "resource.k8s.io/v1")
    assert "kind" not in found["items"][0]


@pytest.mark.usefixtures("three")
async def test_a_collection_is_deleted_by_selector(api: Any) -> None:
    await api.call("DELETE", api.path("configmaps"), labelSelector="app=x")

    assert await api.names("configmaps", labelSelector="app") == ["c"]
