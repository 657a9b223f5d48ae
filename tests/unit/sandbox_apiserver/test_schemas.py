"""Schemas of custom resources and typed reading, by themselves."""

from typing import Any

import pytest

from dray_sandbox.apiserver import matchconditions, structural
from dray_sandbox.apiserver.fields.devices import CLAIM
from dray_sandbox.apiserver.types import decode

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "pools": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string", "default": "main"}},
                    },
                },
                "limit": {"type": "integer", "nullable": True},
                "size": {"type": "integer", "default": 1},
            },
            "x-kubernetes-validations": [
                {"rule": "self.size < 5", "message": "size must be below 5"},
                {"rule": "self.size >= oldSelf.size", "message": "size may not shrink"},
            ],
        }
    },
}


def test_items_of_lists_are_pruned_and_defaulted() -> None:
    unknown: list[str] = []

    value = structural.prune({"spec": {"pools": [{"odd": 1}]}, "x": 1}, SCHEMA, unknown)
    structural.default(value, SCHEMA)

    assert value == {"spec": {"pools": [{"name": "main"}], "size": 1}}
    assert unknown == ["spec.pools[0].odd", "x"]


def test_nulls_count_as_absent_unless_allowed() -> None:
    value: dict[str, Any] = {"spec": {"limit": None, "size": None, "pools": None}}

    structural.drop_nulls(value, SCHEMA)
    structural.default(value, SCHEMA)

    assert value == {"spec": {"limit": None, "size": 1}}
    assert structural.validate(value, SCHEMA) == []


def test_rules_of_the_schema_are_checked() -> None:
    assert structural.rule_errors({"spec": {"size": 4}}, None, SCHEMA) == []
    [error] = structural.rule_errors({"spec": {"size": 7}}, None, SCHEMA)
    assert str(error) == 'spec: Invalid value: "object": size must be below 5'


def test_rules_on_changes_are_checked_only_on_changes() -> None:
    [error] = structural.rule_errors({"spec": {"size": 1}}, {"spec": {"size": 2}}, SCHEMA)

    assert error.body == 'Invalid value: "object": size may not shrink'


def test_an_expression_is_true_false_or_fails() -> None:
    assert matchconditions.evaluate("object.a == 1", {"object": {"a": 1}})
    assert not matchconditions.evaluate("object == null", {"object": {"a": 1}})
    with pytest.raises(matchconditions.ExpressionError):
        matchconditions.evaluate("object.b == 1", {"object": {"a": 1}})
    with pytest.raises(matchconditions.ExpressionError):
        matchconditions.evaluate("1 + 1", {})


def test_unknown_fields_of_built_in_kinds_are_named_with_their_place() -> None:
    claim = {"spec": {"devices": {"requests": [{"name": "a", "exactly": {"selector": {}}}]}}}

    value, unknown = decode(claim, CLAIM, what="ResourceClaim", version="v1", strict=False)

    assert unknown == ["spec.devices.requests[0].exactly.selector"]
    assert value == {"spec": {"devices": {"requests": [{"name": "a", "exactly": {}}]}}}
