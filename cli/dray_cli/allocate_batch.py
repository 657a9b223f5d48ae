"""``dray allocate --batch``: one allocation problem in, what each claim gets out."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from dray.api.errors import InvalidInputError
from dray.kube.convert_dra_claims import allocation_to, claim_from, holdings_from
from dray.kube.convert_dra_slices import class_from, node_from, slice_from
from dray.kube.dra_fields import JsonFields
from dray_allocator.devices.allocate import Problem, allocate
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.usage import usage_of
from dray_allocator.devices.versions import SchedulerVersion, rules_for
from dray_cli import json_lines
from dray_cli.cel_verdict import DEFAULT_VERSION
from dray_cli.json_lines import Answer, Question

Value = TypeVar("Value")


def answers(lines: Iterable[bytes]) -> Iterator[Answer]:
    """The answer to each line that is not blank, in order, as soon as the line is there."""
    return json_lines.answers(lines, answer, empty={"allocations": None})


def answer(question: Question) -> Answer:
    """What Kubernetes decides about one problem, by the keys of the protocol.

    Raises:
        InvalidInputError: a field is missing or of the wrong type.
    """
    rules = _rules(question)
    problem = _problem(question, rules)
    try:
        results = allocate(problem, rules)
    except AllocationError as error:
        return {"allocations": None, "error": str(error)}
    found = None if results is None else [allocation_to(result) for result in results]
    return {"allocations": found, "error": None}


def _rules(question: Question) -> SchedulerVersion:
    fields = JsonFields(question, "line")
    features = fields.texts_if_stated("features")
    return rules_for(fields.text("k8s") or DEFAULT_VERSION, features)


def _problem(question: Question, rules: SchedulerVersion) -> Problem:
    claims = _converted(question, "allocated", lambda obj, path: list(holdings_from(obj, path)))
    return Problem(
        node=node_from(question.get("node"), "node"),
        slices=list(_converted(question, "slices", slice_from)),
        classes=list(_converted(question, "classes", class_from)),
        usage=usage_of((holding for held in claims for holding in held), rules),
        claims=list(_converted(question, "claims", claim_from)),
    )


def _converted(
    question: Question, name: str, convert: Callable[[Any, str], Value]
) -> Iterator[Value]:
    entries = question.get(name)
    if entries is None:
        return
    if not isinstance(entries, list):
        raise InvalidInputError(f"{name} is {type(entries).__name__}, expected a list")
    for index, entry in enumerate(entries):
        yield convert(entry, f"{name}[{index}]")
