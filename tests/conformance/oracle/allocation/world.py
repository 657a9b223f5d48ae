"""What a node can use of the devices in a question, found without an allocator."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Driver, pool and device."""


@dataclass(frozen=True, slots=True)
class Usable:
    """A device and the spec of its slice."""

    spec: Json
    device: Json

    @property
    def per_device(self) -> bool:
        """Whether the device itself says which nodes reach it."""
        return bool(self.spec.get("perDeviceNodeSelection"))

    @property
    def reach(self) -> Json:
        """What says which nodes reach the device."""
        return self.device if self.per_device else self.spec


def has_gate(question: Json, gate: str) -> bool:
    """Whether ``gate``, or one that it is part of, is on."""
    return any(gate in name.split("+") for name in question["features"])


def usable_devices(question: Json) -> dict[Key, Usable]:
    """The devices of complete and valid pools that the node reaches."""
    found: dict[Key, Usable] = {}
    for pool in _pools(question).values():
        devices = [
            Usable(one["spec"], device)
            for one in pool
            for device in one["spec"].get("devices") or []
        ]
        names = Counter(one.device["name"] for one in devices)
        if max(names.values(), default=1) > 1 or not _counters_are_there(question, pool):
            continue
        for one in devices:
            if reaches(question["node"], one.reach) and _is_supported(question, one.device):
                key = (one.spec["driver"], one.spec["pool"]["name"], one.device["name"])
                found[key] = one
    return found


def _is_supported(question: Json, device: Json) -> bool:
    """Whether the gates that the device needs are on."""
    if device.get("consumesCounters") and not has_gate(question, "DRAPartitionableDevices"):
        return False
    binding = has_gate(question, "DRADeviceBindingConditions")
    return binding or not device.get("bindingConditions")


def _pools(question: Json) -> dict[tuple[str, str], list[Json]]:
    """The slices that the node sees, of complete pools, in the newest generation it sees."""
    pools: dict[tuple[str, str], list[Json]] = {}
    for one in question["slices"]:
        if _is_relevant(question, one["spec"]):
            key = (one["spec"]["driver"], one["spec"]["pool"]["name"])
            pools.setdefault(key, []).append(one)
    for key, seen in pools.items():
        newest = max(one["spec"]["pool"]["generation"] for one in seen)
        kept = [one for one in seen if one["spec"]["pool"]["generation"] == newest]
        pools[key] = kept if _is_complete(question, key, kept) else []
    return pools


def _is_complete(question: Json, key: tuple[str, str], seen: list[Json]) -> bool:
    """Whether the pool has as many slices as it says, counting those seen or all there are.

    1.34 allocates from incomplete pools and from obsolete ones, too.
    """
    stated = {one["spec"]["pool"]["resourceSliceCount"] for one in seen}
    if question["k8s"] == "1.34" or len(seen) in stated:
        return True
    generation = seen[0]["spec"]["pool"]["generation"]
    generations = [
        one["spec"]["pool"]["generation"]
        for one in question["slices"]
        if (one["spec"]["driver"], one["spec"]["pool"]["name"]) == key
    ]
    return max(generations) == generation and generations.count(generation) in stated


def _counters_are_there(question: Json, pool: list[Json]) -> bool:
    """Whether each counter set has one name, and all that devices consume is in one."""
    if not has_gate(question, "DRAPartitionableDevices"):
        return True
    entries = [entry for one in pool for entry in one["spec"].get("sharedCounters") or []]
    sets = {entry["name"]: set(entry["counters"]) for entry in entries}
    return len(sets) == len(entries) and all(
        set(consumed["counters"]) <= sets.get(consumed["counterSet"], set())
        for one in pool
        for device in one["spec"].get("devices") or []
        for consumed in device.get("consumesCounters") or []
    )


def _is_relevant(question: Json, spec: Json) -> bool:
    partitions = has_gate(question, "DRAPartitionableDevices")
    if not partitions and (spec.get("perDeviceNodeSelection") or spec.get("sharedCounters")):
        return False
    if spec.get("sharedCounters"):
        return True
    if spec.get("perDeviceNodeSelection"):
        return any(reaches(question["node"], device) for device in spec.get("devices") or [])
    return reaches(question["node"], spec)


def reaches(node: Json, reach: Json) -> bool:
    """Whether a slice or a device that says ``reach`` is there for the node."""
    if reach.get("nodeName"):
        return bool(reach["nodeName"] == node["metadata"]["name"])
    if reach.get("allNodes"):
        return True
    terms = (reach.get("nodeSelector") or {}).get("nodeSelectorTerms", [])
    return any(_term_holds(node, term) for term in terms)


def _term_holds(node: Json, term: Json) -> bool:
    requirements = list(_requirements(term))
    if not requirements:
        return False
    name = {"metadata.name": node["metadata"]["name"]}
    labels = node["metadata"].get("labels") or {}
    return all(
        _holds(name if is_field else labels, requirement) for is_field, requirement in requirements
    )


def _requirements(term: Json) -> Iterator[tuple[bool, Json]]:
    yield from ((True, one) for one in term.get("matchFields") or [])
    yield from ((False, one) for one in term.get("matchExpressions") or [])


def _holds(labels: Json, requirement: Json) -> bool:
    value = labels.get(requirement["key"])
    values = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
        case other:
            raise ValueError(f"operator {other!r} of a node selector is not known here")
