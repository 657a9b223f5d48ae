"""``dray allocate --batch``: answers one allocation problem per line."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from msgspec.json import Decoder

from dray.api.claims import UNREAD, AllocatedDevice, Claim
from dray.api.devices import DeviceClass, ResourceSlice
from dray.api.errors import InvalidInputError
from dray.api.json_codec import checked
from dray.api.pods import Node
from dray.kube.convert import (
    UNREADABLE,
    allocation_from,
    allocation_to,
    claim_from,
    class_from,
    node_from,
    slice_from,
    why_unreadable,
)
from dray_allocator.devices.allocate import Problem, allocate
from dray_allocator.devices.devices_in_use import devices_in_use
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.published_capacity import amount_of, quantities_of
from dray_allocator.devices.versions import SchedulerVersion, scheduler_version
from dray_cli import json_lines
from dray_cli.cel_verdict import DEFAULT_VERSION
from dray_cli.json_lines import Answer, Question

Value = TypeVar("Value")


def answers(lines: Iterable[bytes]) -> Iterator[Answer]:
    """The answer to each line that is not blank, in order, as soon as the line is read."""
    return json_lines.answers(lines, answer, empty={"allocations": None})


def answer(question: Question) -> Answer:
    """What Kubernetes decides about one problem, with the protocol's keys.

    Raises:
        InvalidInputError: a field is missing or of the wrong type.
    """
    version = _version(question)
    problem = _problem(question, version)
    try:
        results = allocate(problem, version)
    except AllocationError as error:
        return {"allocations": None, "error": str(error)}
    found = None if results is None else [allocation_to(result) for result in results]
    return {"allocations": found, "error": None}


def _version(question: Question) -> SchedulerVersion:
    version, features = question.get("k8s"), question.get("features")
    if features is not None and not isinstance(features, list):
        raise InvalidInputError(f"features is {type(features).__name__}, expected a list")
    return scheduler_version(str(version or DEFAULT_VERSION), features)


def _problem(question: Question, version: SchedulerVersion) -> Problem:
    held = _converted(question, "allocated", _held, tuple[AllocatedDevice, ...])
    return Problem(
        node=_read(node_from, question.get("node"), "node", Node),
        slices=[*_converted(question, "slices", _slice, ResourceSlice)],
        classes=[*_converted(question, "classes", class_from, DeviceClass)],
        usage=devices_in_use((device for devices in held for device in devices), version),
        claims=[*_converted(question, "claims", _claim, Claim)],
    )


def _converted(
    question: Question, name: str, convert: Callable[[Any], Value], kind: type[Value]
) -> Iterator[Value]:
    entries = question.get(name)
    if entries is None:
        return
    if not isinstance(entries, list):
        raise InvalidInputError(f"{name} is {type(entries).__name__}, expected a list")
    for index, entry in enumerate(entries):
        yield _read(convert, entry, f"{name}[{index}]", kind)


def _read(convert: Callable[[Any], Value], entry: Any, path: str, kind: type[Value]) -> Value:
    try:
        return checked(convert(entry), Decoder(kind))
    except UNREADABLE as error:
        raise InvalidInputError(f"{path} {why_unreadable(error)}") from error


def _slice(obj: Any) -> ResourceSlice:
    part = slice_from(obj)
    for device in part.devices:
        for name, capacity in device.capacity.items():
            for text in quantities_of(capacity):
                if amount_of(text) is None:
                    raise InvalidInputError(
                        f"device {device.name}: {name} {text!r} is not a quantity"
                    )
    return part


def _claim(obj: Any) -> Claim:
    claim = claim_from({**obj, "metadata": {"uid": "", **obj["metadata"]}})
    if claim.spec.unreadable:
        raise InvalidInputError(claim.spec.unreadable.removeprefix(UNREAD))
    return claim


def _held(obj: Any) -> tuple[AllocatedDevice, ...]:
    allocation = (obj.get("status") or {}).get("allocation")
    return allocation_from(allocation).devices if allocation else ()
