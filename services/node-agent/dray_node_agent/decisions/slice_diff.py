"""Compares desired with existing ResourceSlices.

The rules are those of Kubernetes' slice controller: quantities are compared by amount, a taint
keeps the ``timeAdded`` that the server set, and dropped fields are found by comparing the server's
answer with the request.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dray.api.quantities import parse_quantity
from dray.kube.ports import Object
from dray.messages.facts import ClusterObserved

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SliceChanges:
    """The writes, in the order in which they are made."""

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
    """Whether ``existing`` equals ``desired``, except for ``dropped`` fields."""
    if len(desired) != len(existing):
        return False
    found = {one["metadata"]["name"]: one for one in existing}
    paths = tuple(dropped)
    return all(
        (other := found.get(one["metadata"]["name"])) is not None and _equal(one, other, paths)
        for one in desired
    )


def changes(desired: Sequence[Object], existing: Sequence[Object]) -> SliceChanges:
    """The writes that turn ``existing`` into ``desired``."""
    found = {one["metadata"]["name"]: one for one in existing}
    wanted = {one["metadata"]["name"] for one in desired}
    return SliceChanges(
        deletes=tuple(one for one in existing if one["metadata"]["name"] not in wanted),
        updates=tuple(
            _as_update(one, found[one["metadata"]["name"]])
            for one in desired
            if one["metadata"]["name"] in found
        ),
        creates=tuple(one for one in desired if one["metadata"]["name"] not in found),
    )


def dropped_fields(sent: Object, kept: Object) -> frozenset[Path]:
    """Paths in ``spec`` that the server did not keep; list positions are left out."""
    return frozenset(_missing(sent["spec"], kept.get("spec") or {}, ("spec",)))


def now_kept(dropped: Iterable[Path], server: ClusterObserved) -> frozenset[Path]:
    """The ``dropped`` fields that the server keeps now."""
    shares, taints = server.consumable_capacity, server.device_taints
    kept = {"allowMultipleAllocations": shares, "requestPolicy": shares, "taints": taints}
    return frozenset(path for path in dropped if kept.get(path[-1], False))


def has_joint_counters(server: ClusterObserved) -> bool:
    """Whether counters belong in the slice of their devices: only in Kubernetes 1.34."""
    return server.version.startswith(("v1.34.", "1.34."))


def path_text(path: Path) -> str:
    """A path for people: ``spec.devices[].taints``."""
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


def _as_update(desired: Object, existing: Object) -> Object:
    """``desired`` as an update of ``existing``, with its resourceVersion and taints' times."""
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
    spec = dict(desired["spec"])
    if "devices" in spec:
        spec["devices"] = [_with_taint_times(device, since) for device in spec["devices"]]
    return desired | {"metadata": metadata, "spec": spec}


def _with_taint_times(device: Object, since: Mapping[tuple[str, Path], str]) -> Object:
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
    """The spec with amounts as numbers, without defaults and times set by the server."""
    devices = [
        device
        | {"capacity": _amounts(device.get("capacity") or {})}
        | {"taints": sorted(_taint(taint) for taint in device.get("taints") or ())}
        for device in spec.get("devices") or ()
    ]
    return {key: value for key, value in spec.items() if key != "devices"} | {"devices": devices}


def _amounts(value: Any) -> Any:
    """Parse all quantities of a capacity."""
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
