"""Objects in forms that no release of dray knows, as a later Kubernetes or another client may write
them. Only the processes that a refusal names get them so; the store keeps what was written."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from dray.kube.ports import Object

Form = Callable[[Object], None]
"""Makes an object unreadable."""


def _part(*path: str, value: Any) -> Form:
    """Another value at a path, where there is one."""

    def change(obj: Object) -> None:
        at: Any = obj
        for name in path[:-1]:
            at = at.get(name)
            if not isinstance(at, dict):
                return
        if path[-1] in at:
            at[path[-1]] = value

    return change


def _all(*forms: Form) -> Form:
    def change(obj: Object) -> None:
        for form in forms:
            form(obj)

    return change


_RESULTS: Final = ("status", "allocation", "devices", "results")
_SHAPES: Final[Mapping[str, tuple[Form, ...]]] = {
    "resourceclaims": (
        _part("spec", "devices", value="a later form"),
        _part("spec", "devices", "requests", value=[{"exactly": 5}]),
        _part(*_RESULTS, value=[{"later": True}]),
        _all(_part("spec", "devices", value=5), _part("status", "allocation", value="all")),
    ),
    "pods": (
        _part("spec", "resourceClaims", value=[{"later": True}]),
        _part("spec", "containers", value="a later form"),
        _part("metadata", "annotations", value=["a later form"]),
    ),
    "resourceslices": (
        _part("spec", "devices", value=[{"later": True}]),
        _part("spec", "pool", value="a later form"),
    ),
    "nodes": (
        _part("status", "allocatable", value={"cpu": "several"}),
        _part("status", "allocatable", value="a later form"),
        _part("spec", value=5),
    ),
    "gpupools": (
        _part("spec", value={"capacityConfig": 5}),
        _part("spec", value=["a later form"]),
    ),
}
NUMBER: Final = max(map(len, _SHAPES.values()))
"""Of the shapes that the kind with the most of them has."""


def unreadable(plural: str, obj: Object, shape: int, copy: Callable[[Object], Object]) -> Object:
    """A copy of the object in one of its kind's unreadable shapes."""
    made = copy(obj)
    shapes = _SHAPES[plural]
    shapes[shape % len(shapes)](made)
    return made
