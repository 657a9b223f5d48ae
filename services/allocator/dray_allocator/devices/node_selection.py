"""Match a node by nodeName, nodeSelector or allNodes of a slice or device.

Node selectors follow ``component-helpers/scheduling/corev1/nodeaffinity``.
"""

import re
from collections.abc import Mapping
from typing import Final

from dray.api.nodes import (
    NodeSelection,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from dray.api.pods import Node
from dray_allocator.devices.errors import AllocationError

_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_LONGEST_PREFIX: Final = 253
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64: Final = range(-(2**63), 2**63)


def is_reached(reach: NodeSelection, node: Node) -> bool:
    """Whether ``reach`` selects ``node``.

    Raises:
        AllocationError: the node selector can't be parsed.
    """
    if reach.node:
        return node.name == reach.node
    if reach.all_nodes:
        return True
    return reach.selector is not None and _selects(reach.selector, node)


def _selects(selector: NodeSelector, node: Node) -> bool:
    terms = [term for term in selector.terms if term.expressions or term.fields]
    faults = [fault for term in terms for fault in _faults(term)]
    if faults:
        raise AllocationError(f"node selector can't be read: {faults[0]}")
    return any(_term_holds(term, node) for term in terms)


def _term_holds(term: NodeSelectorTerm, node: Node) -> bool:
    if not all(_label_holds(one, node.labels) for one in term.expressions):
        return False
    fields = {"metadata.name": node.name} if node.name else {}
    return not fields or all(_field_holds(one, fields) for one in term.fields)


def _label_holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    seen = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return seen is not None and seen in requirement.values
        case "NotIn":
            return seen is None or seen not in requirement.values
        case "Exists":
            return seen is not None
        case "DoesNotExist":
            return seen is None
        case _:
            return _compares(requirement, seen)


def _compares(requirement: NodeSelectorRequirement, seen: str | None) -> bool:
    left, right = _integer(seen or ""), _integer(requirement.values[0])
    if left is None or right is None:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def _field_holds(requirement: NodeSelectorRequirement, fields: Mapping[str, str]) -> bool:
    is_equal = fields.get(requirement.key, "") == requirement.values[0]
    return is_equal if requirement.operator == "In" else not is_equal


def _faults(term: NodeSelectorTerm) -> list[str]:
    labels = (_label_fault(one) for one in term.expressions)
    fields = (_field_fault(one) for one in term.fields)
    return [fault for fault in (*labels, *fields) if fault]


def _label_fault(requirement: NodeSelectorRequirement) -> str:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if not _is_label_key(key):
        return f"{key!r} is not a label key"
    if not all(_LABEL_VALUE.fullmatch(value) for value in values):
        return f"a value of {key} is not a label value"
    match operator:
        case "In" | "NotIn":
            return "" if values else f"operator {operator} of {key} has no values"
        case "Exists" | "DoesNotExist":
            return f"operator {operator} of {key} has values" if values else ""
        case "Gt" | "Lt":
            is_one = len(values) == 1 and _integer(values[0]) is not None
            return "" if is_one else f"operator {operator} of {key} needs one integer"
        case _:
            return f"operator {operator!r} of {key} is unknown"


def _field_fault(requirement: NodeSelectorRequirement) -> str:
    if requirement.operator not in ("In", "NotIn"):
        return f"operator {requirement.operator!r} of field {requirement.key} is unknown"
    return "" if len(requirement.values) == 1 else f"field {requirement.key} needs one value"


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix)):
        return False
    return _NAME.fullmatch(name) is not None


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT64 else None
