"""CustomResourceDefinitions: served at once, pruned, defaulted, patched."""

from typing import Any

import pytest
from tests.contract.kubernetes.custom_resources.widgets import GROUP, widget


async def test_defaults_are_filled_in(api: Any, widgets: str) -> None:
    made = await api.create(widgets, widget(widgets, "one", size=1))

    assert made["spec"] == {"size": 1, "owner": "dray", "nested": {"ratio": 1.5}}
    assert made["metadata"]["generation"] == 1


async def test_unknown_fields_are_pruned_but_for_free_ones(api: Any, widgets: str) -> None:
    body = widget(widgets, "one", size=1, odd=2, free={"x": {"y": 1}}, nested={"odd": 1})

    made = await api.create(widgets, body)

    assert "odd" not in made["spec"]
    assert made["spec"]["nested"] == {"ratio": 1.5}
    assert made["spec"]["free"] == {"x": {"y": 1}}


async def test_status_and_spec_are_written_apart(api: Any, widgets: str) -> None:
    made = await api.create(
        widgets, widget(widgets, "one", size=1) | {"status": {"phase": "Early"}}
    )
    assert "status" not in made

    after = await api.patch(
        widgets, "one", {"spec": {"size": 5}, "status": {"phase": "Ready"}}, "status"
    )
    assert (after["spec"]["size"], after["status"]) == (1, {"phase": "Ready"})
    assert after["metadata"]["generation"] == 1

    after = await api.patch(widgets, "one", {"spec": {"size": 5}, "status": {"phase": "X"}})
    assert (after["spec"]["size"], after["status"]) == (5, {"phase": "Ready"})
    assert after["metadata"]["generation"] == 2


async def test_a_strategic_patch_is_not_understood(api: Any, refused: Any, widgets: str) -> None:
    await api.create(widgets, widget(widgets, "one", size=1))

    with pytest.raises(refused) as caught:
        await api.patch(widgets, "one", {"spec": {"size": 2}}, kind="strategic")

    assert (caught.value.code, caught.value.reason) == (415, "UnsupportedMediaType")


async def test_a_put_needs_a_version(api: Any, refused: Any, widgets: str) -> None:
    await api.create(widgets, widget(widgets, "one", size=1))

    with pytest.raises(refused) as caught:
        await api.put(widgets, widget(widgets, "one", size=2))

    expected = ("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
    assert caught.value.causes() == [expected]


async def test_applying_a_custom_resource_creates_it(api: Any, widgets: str) -> None:
    body = widget(widgets, "one", size=1)

    made = await api.patch(widgets, "one", body, kind="apply", fieldManager="me")

    assert made["spec"]["owner"] == "dray"


async def test_two_appliers_own_items_of_a_keyed_list(api: Any, widgets: str) -> None:
    for manager, part in (("one", "a"), ("two", "b")):
        body = widget(widgets, "one", size=1, parts=[{"name": part, "size": 1}])
        made = await api.patch(widgets, "one", body, kind="apply", fieldManager=manager)

    assert [part["name"] for part in made["spec"]["parts"]] == ["a", "b"]


async def test_a_json_patch_is_applied_and_tested(api: Any, refused: Any, widgets: str) -> None:
    await api.create(widgets, widget(widgets, "one", size=1))
    change = [
        {"op": "test", "path": "/spec/size", "value": 1},
        {"op": "replace", "path": "/spec/size", "value": 2},
    ]
    after = await api.patch(widgets, "one", change, kind="json")
    assert after["spec"]["size"] == 2

    with pytest.raises(refused) as caught:
        await api.patch(widgets, "one", change, kind="json")

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


async def test_tables_have_the_columns_of_the_definition(api: Any, widgets: str) -> None:
    await api.create(widgets, widget(widgets, "one", size=3))
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

    table = await api.call("GET", api.path(widgets), accept=accept)

    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size", "Phase"]
    assert table["rows"][0]["cells"] == ["one", 3, None]


async def test_a_definition_takes_its_objects_along(api: Any, refused: Any, widgets: str) -> None:
    await api.create(widgets, widget(widgets, "one", size=1))
    plural = widgets.rpartition("/")[2]

    await api.delete("customresourcedefinitions", f"{plural}.{GROUP}")

    await api.gone("customresourcedefinitions", f"{plural}.{GROUP}")

    async def unserved() -> bool:
        try:
            await api.get(widgets)
        except refused as error:
            return bool(error.code == 404)
        return False

    await api.until(unserved)
