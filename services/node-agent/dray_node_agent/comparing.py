"""What differs between the slices that should be and those that are. Pure.

The rules are those of Kubernetes' own slice controller: quantities compare by amount, the
``timeAdded`` that the server gives a taint is kept, fields that the server dropped are found
by comparing its answer with the request.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dray.domain.quantities import parse_quantity
from dray.kube.ports import Object
from dray.messages.facts import ClusterObserved

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """Writes in the order in which they are to happen."""

    deletes: tuple[Object, ...] = ()
    updates: tuple[Object, ...] = ()
    creates: tuple[Object, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deletes or self.updates or self.creates)


def generation_of(existing: Iterable[Object]) -> int:
    """The highest generation among slices; 0 without any."""
    return max((int(one["spec"]["pool"]["generation"]) for one in existing), default=0)


def is_published(
    desired: Sequence[Object], existing: Sequence[Object], dropped: Iterable[Path]
) -> bool:
    """Whether ``existing`` is ``desired`` but for fields known to be ``dropped``."""
    if len(desired) != len(existing):
        return False
    found = {one["metadata"]["name"]: one for one in existing}
    paths = tuple(dropped)
    return all(
        (other := found.get(one["metadata"]["name"])) is not None and _equal(one, other, paths)
        for one in desired
    )


def changes(desired: Sequence[Object], existing: Sequence[Object]) -> Changes:
    """The writes that make ``existing`` into ``desired``."""
    found = {one["metadata"]["name"]: one for one in existing}
    wanted = {one["metadata"]["name"] for one in desired}
    return Changes(
        deletes=tuple(one for one in existing if one["metadata"]["name"] not in wanted),
        updates=tuple(
            _onto(one, found[one["metadata"]["name"]])
            for one in desired
            if one["metadata"]["name"] in found
        ),
        creates=tuple(one for one in desired if one["metadata"]["name"] not in found),
    )


def dropped_fields(sent: Object, kept: Object) -> frozenset[Path]:
    """Paths in ``spec`` that the server did not keep; list positions are left out."""
    return frozenset(_missing(sent["spec"], kept.get("spec") or {}, ("spec",)))


def regained(dropped: Iterable[Path], server: ClusterObserved) -> frozenset[Path]:
    """Of the ``dropped`` fields those that the server is said to keep by now."""
    shares, taints = server.consumable_capacity, server.device_taints
    kept = {"allowMultipleAllocations": shares, "requestPolicy": shares, "taints": taints}
    return frozenset(path for path in dropped if kept.get(path[-1], False))


def in_words(path: Path) -> str:
    """A path as people write it: ``spec.devices[].taints``."""
    return ".".join(path).replace(".[]", "[]")


def _equal(desired: Object, existing: Object, dropped: Sequence[Path]) -> bool:
    metadata, other = desired["metadata"], existing["metadata"]
    labels = other.get("labels") or {}
    if any(labels.get(key) != value for key, value in metadata["labels"].items()):
        return False
    if [owner["uid"] for owner in metadata["ownerReferences"]] != [
        owner.get("uid") for owner in other.get("ownerReferences") or ()
    ]:
        return False
    spec = _without(desired["spec"], dropped, ("spec",))
    return bool(_canonical(spec) == _canonical(existing["spec"]))


def _onto(desired: Object, existing: Object) -> Object:
    """``desired`` as an update of ``existing``: fenced, taints as old as they are."""
    metadata = existing["metadata"] | {
        "labels": (existing["metadata"].get("labels") or {}) | desired["metadata"]["labels"],
        "ownerReferences": desired["metadata"]["ownerReferences"],
    }
    since = {
        (device["name"], _taint(taint)): taint["timeAdded"]
        for device in existing["spec"].get("devices") or ()
        for taint in device.get("taints") or ()
        if "timeAdded" in taint
    }
    devices = [_aged(device, since) for device in desired["spec"]["devices"]]
    return desired | {"metadata": metadata, "spec": desired["spec"] | {"devices": devices}}


def _aged(device: Object, since: Mapping[tuple[str, Path], str]) -> Object:
    if "taints" not in device:
        return device
    taints = [
        taint
        | ({"timeAdded": since[key]} if (key := (device["name"], _taint(taint))) in since else {})
        for taint in device["taints"]
    ]
    return device | {"taints": taints}


def _taint(taint: Mapping[str, Any]) -> Path:
    return (taint["key"], taint.get("value") or "", taint["effect"])


def _canonical(spec: Mapping[str, Any]) -> Any:
    """The spec with amounts as numbers, defaults and server-given times left out."""
    devices = [
        device
        | {"capacity": _amounts(device.get("capacity") or {})}
        | {"taints": sorted(_taint(taint) for taint in device.get("taints") or ())}
        for device in spec.get("devices") or ()
    ]
    return {key: value for key, value in spec.items() if key != "devices"} | {"devices": devices}


def _amounts(value: Any) -> Any:
    """Every text below a capacity is a quantity."""
    if isinstance(value, Mapping):
        return {key: _amounts(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_amounts(one) for one in value]
    return parse_quantity(str(value))


def _missing(sent: Any, kept: Any, path: Path) -> Iterable[Path]:
    if isinstance(sent, Mapping) and isinstance(kept, Mapping):
        for key, value in sent.items():
            below = (*path, key)
            if key in kept:
                yield from _missing(value, kept[key], below)
            elif value not in ("", [], {}, None, False):
                yield below
    elif isinstance(sent, list) and isinstance(kept, list):
        for one, other in zip(sent, kept, strict=False):
            yield from _missing(one, other, (*path, "[]"))


def _without(value: Any, dropped: Sequence[Path], path: Path) -> Any:
    if not dropped:
        return value
    if isinstance(value, Mapping):
        return {
            key: _without(one, dropped, (*path, key))
            for key, one in value.items()
            if (*path, key) not in dropped
        }
    if isinstance(value, list):
        return [_without(one, dropped, (*path, "[]")) for one in value]
    return value
