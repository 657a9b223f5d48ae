"""CustomResourceDefinitions: served at once, pruned, defaulted, validated."""

from typing import Any

import pytest

GROUP = "contract.example.com"


def definition(plural: str, scope: str = "Namespaced") -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 8},
            "owner": {"type": "string", "enum": ["dray", "kube-scheduler"], "default": "dray"},
            "nested": {
                "type": "object",
                "default": {},
                "properties": {"ratio": {"type": "number", "default": 1.5}},
            },
            "names": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "amount": {"x-kubernetes-int-or-string": True},
            "when": {"type": "string", "format": "date-time"},
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
                },
            },
            "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        },
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        ],
    }
    kind = plural[:-1].title()
    return {
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, "singular": plural[:-1]},
            "versions": [version],
        },
    }


@pytest.fixture
async def widgets(api: Any) -> Any:
    """The resource's name for `api`, of a new established CRD."""
    plural = f"w{api.namespace}s"
    await api.create("customresourcedefinitions", definition(plural))
    resource = f"{GROUP}/v1/{plural}"
    name = f"{plural}.{GROUP}"
    resource = f"{GROUP}/v1/{plural}"

    async def served() -> bool:
        crd = await api.get("customresourcedefinitions", name)
        conditions = crd["status"]["conditions"] or []
        if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            return False
        try:
            await api.get(resource)
        except AssertionError:
            return False
        return True

    await api.until(served)
    return resource


def widget(widgets: str, name: str, **spec: Any) -> dict[str, Any]:
    plural = widgets.rpartition("/")[2]
    kind = plural[:-1].title()
    meta = {"name": name}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": meta, "spec": spec}


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


async def test_strict_validation_names_unknown_fields(api: Any, refused: Any, widgets: str) -> None:
    body = widget(widgets, "bad", size=1, odd=2, nested={"strange": 1})
    with pytest.raises(refused) as caught:
        await api.create(widgets, body, fieldValidation="Strict")

    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    kind = widget(widgets, "x")["kind"]
    assert caught.value.message == (
        f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: '
        'unknown field "spec.nested.strange", unknown field "spec.odd"'
    )


BAD = {
    "a missing field": ({}, ("spec.size", "Required value")),
    "too small": (
        {"size": 0},
        (
            "spec.size",
            "Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
    ),
    "too large": (
        {"size": 9},
        ("spec.size", "Invalid value: 9: spec.size in body should be less than or equal to 8"),
    ),
    "the wrong type": (
        {"size": "1"},
        (
            "spec.size",
            'Invalid value: "string": spec.size in body must be of type integer: "string"',
        ),
    ),
    "not in the list": (
        {"size": 1, "owner": "me"},
        ("spec.owner", 'Unsupported value: "me": supported values: "dray", "kube-scheduler"'),
    ),
    "too many": (
        {"size": 1, "names": ["a", "b", "c"]},
        ("spec.names", "Too many: 3: must have at most 2 items"),
    ),
    "a wrong item": (
        {"size": 1, "names": [1]},
        (
            "spec.names[0]",
            'Invalid value: "integer": spec.names[0] in body must be of type string: "integer"',
        ),
    ),
    "a wrong value in a map": (
        {"size": 1, "labels": {"a": 1}},
        (
            "spec.labels.a",
            'Invalid value: "integer": spec.labels.a in body must be of type string: "integer"',
        ),
    ),
    "a pattern": (
        {"size": 1, "code": "A"},
        ("spec.code", "Invalid value: \"A\": spec.code in body should match '^[a-z]+$'"),
    ),
    "no time": (
        {"size": 1, "when": "tomorrow"},
        (
            "spec.when",
            'Invalid value: "tomorrow": spec.when in body must be of type date-time: "tomorrow"',
        ),
    ),
    "a key twice": (
        {"size": 1, "parts": [{"name": "a"}, {"name": "a"}]},
        ("spec.parts[1]", 'Duplicate value: {"name":"a"}'),
    ),
    "too long": (
        {"size": 1, "code": "abcdef"},
        ("spec.code", "Too long: may not be more than 5 bytes"),
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_wrong_object_is_refused(api: Any, refused: Any, widgets: str, what: str) -> None:
    spec, expected = BAD[what]

    with pytest.raises(refused) as caught:
        await api.create(widgets, widget(widgets, "bad", **spec))

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.causes() == [expected]
    kind = widget(widgets, "x")["kind"]
    message = f'{kind}.{GROUP} "bad" is invalid: {expected[0]}: {expected[1]}'
    assert caught.value.message == message


async def test_int_or_string_takes_both(api: Any, widgets: str) -> None:
    one = await api.create(widgets, widget(widgets, "one", size=1, amount=5))
    two = await api.create(widgets, widget(widgets, "two", size=1, amount="5%"))

    assert (one["spec"]["amount"], two["spec"]["amount"]) == (5, "5%")


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


async def test_a_definition_without_schema_is_refused(api: Any, refused: Any) -> None:
    plural = f"x{api.namespace}s"
    body = definition(plural)
    del body["spec"]["versions"][0]["schema"]

    with pytest.raises(refused) as caught:
        await api.create("customresourcedefinitions", body)

    assert caught.value.code == 422
    fields = [field for field, _ in caught.value.causes()]
    assert "spec.versions[0].schema.openAPIV3Schema" in fields


async def test_a_misnamed_definition_is_refused(api: Any, refused: Any) -> None:
    body = definition(f"x{api.namespace}s")
    body["metadata"]["name"] = f"other.{GROUP}"

    with pytest.raises(refused) as caught:
        await api.create("customresourcedefinitions", body)

    assert caught.value.causes()[0][0] == "metadata.name"
