"""A question's parts, and how each of a kind is changed."""

from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
Removal = Callable[[Json], None]
"""Takes a feature out of a question that it may change."""


def wanted_by(claim: Json) -> Iterator[Json]:
    """The exact requests and the subrequests of a claim."""
    for request in claim["spec"]["devices"]["requests"]:
        yield from request.get("firstAvailable", [request.get("exactly")])


def devices_of(question: Json) -> Iterator[tuple[Json, Json]]:
    """Each device with the spec of its slice."""
    for one in question["slices"]:
        for device in one["spec"].get("devices", []):
            yield one["spec"], device


def each_wanted(change: Callable[[Json], object]) -> Removal:
    """What changes every request and subrequest so."""

    def remove(question: Json) -> None:
        for claim in question["claims"]:
            for wanted in wanted_by(claim):
                change(wanted)

    return remove


def each_device(change: Callable[[Json], object]) -> Removal:
    """What changes every device so."""

    def remove(question: Json) -> None:
        for _, device in devices_of(question):
            change(device)

    return remove


def dropping(*keys: str) -> Callable[[Json], None]:
    """What takes these keys from an object."""

    def change(holder: Json) -> None:
        for key in keys:
            holder.pop(key, None)

    return change
