"""Every change of Kubernetes' objects during a run, in one order, and what they may not show.

The versions of all kinds come from one counter, so changes that several watches told sort
into the order in which they were written.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dray.kube.convert import claim_from
from dray.kube.memory_store import Event, Key, MemoryStore
from dray.kube.ports import CLAIMS, PODS, Changed, Deleted, Listed, Object, Resource, WatchEvent
from dray_sandbox.simulation.invariants import SimulationInvariants

_ORDER = {CLAIMS: 1, PODS: 2}


@dataclass(frozen=True, slots=True)
class ObservedChange:
    """An object as it became; None: it is gone."""

    version: int
    resource: Resource
    key: Key
    object: Object | None


@dataclass(slots=True)
class StackHistory:
    """What the watches told."""

    changes: list[ObservedChange] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Versions above the first, up to the second, may be missing: a watch had to list again."""
    _now: dict[Resource, dict[Key, Object]] = field(default_factory=dict)
    _told: dict[Resource, int] = field(default_factory=dict)
    """The highest version that the watch of a kind told."""
    _grew: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, resource: Resource, event: WatchEvent) -> None:
        """Take an event of the watch of a kind."""
        match event:
            case Listed(objects, version):
                self._relisted(resource, objects, version)
            case Changed(obj):
                self._put(resource, obj)
            case Deleted(obj):
                self._drop(resource, _key(obj), version_of(obj))
        self._grew.set()

    async def has(self, count: int, resource: Resource) -> None:
        """Wait for so many changes of a kind."""
        while sum(change.resource == resource for change in self.changes) < count:
            self._grew.clear()
            await self._grew.wait()

    def is_at(self, resource: Resource, objects: Iterable[Object]) -> bool:
        """Whether this is what it has seen of a kind."""
        seen = {key: version_of(obj) for key, obj in self._now.get(resource, {}).items()}
        return seen == {_key(obj): version_of(obj) for obj in objects}

    def checked(self) -> SimulationInvariants:
        """What an observer of every change has to say; ``violations`` should be empty.

        Nobody is accused in a gap, where changes of one kind may lack that explain another's.
        """
        invariants = new_invariants()
        for change in sorted(self.changes, key=lambda change: change.version):
            before = len(invariants.violations)
            _see(invariants, change)
            if any(first < change.version <= last for first, last in self.gaps):
                del invariants.violations[before:]
        return invariants

    def _relisted(self, resource: Resource, objects: tuple[Object, ...], version: int) -> None:
        if resource in self._told:
            self.gaps.append((self._told[resource], version))
        present = {_key(obj) for obj in objects}
        for key in [key for key in self._now.get(resource, {}) if key not in present]:
            self._drop(resource, key, version)
        for obj in objects:
            self._put(resource, obj)
        self._told[resource] = version

    def _put(self, resource: Resource, obj: Object) -> None:
        key, version = _key(obj), version_of(obj)
        known = self._now.setdefault(resource, {})
        if key not in known or version_of(known[key]) < version:
            known[key] = obj
            self.changes.append(ObservedChange(version, resource, key, obj))
        self._told[resource] = max(version, self._told.get(resource, 0))

    def _drop(self, resource: Resource, key: Key, version: int) -> None:
        if self._now.setdefault(resource, {}).pop(key, None) is not None:
            self.changes.append(ObservedChange(version, resource, key, None))
        self._told[resource] = max(version, self._told.get(resource, 0))


def new_invariants() -> SimulationInvariants:
    """One that has seen nothing."""
    return SimulationInvariants(MemoryStore(lambda: 0.0))


def invariants_of(listed: Mapping[Resource, Listed]) -> SimulationInvariants:
    """One that has seen only what there is now: cards, then claims, then who is bound."""
    invariants = new_invariants()
    for resource in sorted(listed, key=lambda resource: _ORDER.get(resource, 0)):
        for obj in listed[resource].objects:
            _see(invariants, ObservedChange(version_of(obj), resource, _key(obj), obj))
    return invariants


def version_of(obj: Object) -> int:
    """``metadata.resourceVersion``, by which changes of all kinds are ordered."""
    return int(obj["metadata"]["resourceVersion"])


def _see(invariants: SimulationInvariants, change: ObservedChange) -> None:
    here = invariants.store.of(change.resource)
    before = here.get(change.key)
    if change.object is None:
        here.pop(change.key, None)
    else:
        here[change.key] = change.object
    event = Event(change.resource, before, change.object)
    if change.resource == CLAIMS:
        invariants.violations.extend(_moved(event))
    if before is not None or change.object is not None:
        invariants.check(event)


def _key(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _moved(event: Event) -> list[str]:
    """An allocation is taken back before there is another."""
    if event.before is None or event.after is None:
        return []
    before, after = _places(event.before), _places(event.after)
    same = event.before["metadata"]["uid"] == event.after["metadata"]["uid"]
    if not (same and before and after) or before == after:
        return []
    name = event.after["metadata"]["name"]
    return [f"claim {name} moved from {before} to {after} and was not taken back in between"]


def _places(claim: Object) -> list[str]:
    allocation = claim_from(claim).allocation
    devices = allocation.devices if allocation is not None else ()
    return sorted(f"{one.id.pool}/{one.id.device}" for one in devices)
