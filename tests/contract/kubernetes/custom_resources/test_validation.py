"""CustomResourceDefinitions: what is refused of their objects, and of themselves."""

from typing import Any

import pytest
from tests.contract.kubernetes.custom_resources.widgets import GROUP, definition, widget


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
