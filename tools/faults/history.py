"""The history of Kubernetes' objects during a run, and its checks.

All kinds share one counter of resource versions, so changes of several watches can be sorted in
the order of their writes.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from dray.kube.convert import claim_from
from dray.kube.convert_groups import group_member
from dray.kube.memory_store import Event, Key, MemoryStore
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NODES,
    POD_GROUPS,
    PODS,
    POOLS,
    SLICES,
    TEMPLATES,
    Changed,
    Deleted,
    Kube,
    Listed,
    Object,
    Resource,
    WatchEvent,
)
from tools.simulation.invariants import SimulationInvariants

_ORDER = {CLAIMS: 1, PODS: 2}


@dataclass(frozen=True, slots=True)
class ObservedChange:
    """An object after a change; None: deleted."""

    version: int
    resource: Resource
    key: Key
    object: Object | None


@dataclass(slots=True)
class StackHistory:
    """The changes from the watches."""

    changes: list[ObservedChange] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Versions above the first, up to the second, may be missing, because a watch listed again."""
    _now: dict[Resource, dict[Key, Object]] = field(default_factory=dict)
    _versions: dict[Resource, int] = field(default_factory=dict)
    """The highest version of each kind's watch."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def apply(self, resource: Resource, event: WatchEvent) -> None:
        """Apply an event of a kind's watch."""
        match event:
            case Listed(objects, version):
                self._apply_list(resource, objects, version)
            case Changed(obj):
                self._put(resource, obj)
            case Deleted(obj):
                self._remove(resource, _key(obj), version_of(obj))
        self._changed.set()

    async def wait_for_changes(self, count: int, resource: Resource) -> None:
        """Wait for a number of changes of a kind."""
        while sum(change.resource == resource for change in self.changes) < count:
            self._changed.clear()
            await self._changed.wait()

    def matches(self, resource: Resource, objects: Iterable[Object]) -> bool:
        """Whether these are the newest known versions of a kind."""
        seen = {key: version_of(obj) for key, obj in self._now.get(resource, {}).items()}
        return seen == {_key(obj): version_of(obj) for obj in objects}

    def check_all(self) -> SimulationInvariants:
        """The invariants after all changes; ``violations`` should be empty.

        Violations in a gap are dropped, because changes of other kinds may be missing there.
        """
        invariants = new_invariants()
        for change in sorted(self.changes, key=lambda change: change.version):
            before = len(invariants.violations)
            _apply(invariants, change)
            if any(first < change.version <= last for first, last in self.gaps):
                del invariants.violations[before:]
        return invariants

    def _apply_list(self, resource: Resource, objects: tuple[Object, ...], version: int) -> None:
        if resource in self._versions:
            self.gaps.append((self._versions[resource], version))
        present = {_key(obj) for obj in objects}
        for key in [key for key in self._now.get(resource, {}) if key not in present]:
            self._remove(resource, key, version)
        for obj in objects:
            self._put(resource, obj)
        self._versions[resource] = version

    def _put(self, resource: Resource, obj: Object) -> None:
        key, version = _key(obj), version_of(obj)
        known = self._now.setdefault(resource, {})
        if key not in known or version_of(known[key]) < version:
            known[key] = obj
            self.changes.append(ObservedChange(version, resource, key, obj))
        self._versions[resource] = max(version, self._versions.get(resource, 0))

    def _remove(self, resource: Resource, key: Key, version: int) -> None:
        if self._now.setdefault(resource, {}).pop(key, None) is not None:
            self.changes.append(ObservedChange(version, resource, key, None))
        self._versions[resource] = max(version, self._versions.get(resource, 0))


def new_invariants() -> SimulationInvariants:
    """Invariants without any change."""
    return SimulationInvariants(MemoryStore(lambda: 0.0))


def invariants_of(listed: Mapping[Resource, Listed]) -> SimulationInvariants:
    """The invariants of the present objects: slices, then claims, then pods."""
    invariants = new_invariants()
    for resource in sorted(listed, key=lambda resource: _ORDER.get(resource, 0)):
        for obj in listed[resource].objects:
            _apply(invariants, ObservedChange(version_of(obj), resource, _key(obj), obj))
    return invariants


def version_of(obj: Object) -> int:
    """``metadata.resourceVersion``, which orders changes of all kinds."""
    return int(obj["metadata"]["resourceVersion"])


def _apply(invariants: SimulationInvariants, change: ObservedChange) -> None:
    here = invariants.store.of(change.resource)
    before = here.get(change.key)
    if change.object is None:
        here.pop(change.key, None)
    else:
        here[change.key] = change.object
    event = Event(change.resource, before, change.object)
    if change.resource == CLAIMS:
        invariants.violations.extend(_moved_allocations(event))
    if change.resource == PODS:
        invariants.violations.extend(_bound_in_part(invariants.store, event))
    if before is not None or change.object is not None:
        invariants.check(event)


def _key(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _moved_allocations(event: Event) -> list[str]:
    """Violations of this rule: a claim is deallocated before it is allocated again."""
    if event.before is None or event.after is None:
        return []
    before, after = _devices_of(event.before), _devices_of(event.after)
    same = event.before["metadata"]["uid"] == event.after["metadata"]["uid"]
    if not (same and before and after) or before == after:
        return []
    name = event.after["metadata"]["name"]
    return [f"claim {name} moved from {before} to {after} without deallocation in between"]


def _bound_in_part(store: MemoryStore, event: Event) -> list[str]:
    """Violations of this rule: a group's pod is bound only if enough of its pods have devices."""
    if event.before is None or event.after is None or not event.after["spec"].get("nodeName"):
        return []
    if event.before["spec"].get("nodeName"):
        return []
    member = group_member(event.after)
    key = None if member is None else member.group
    group = None if key is None else store.of(POD_GROUPS).get((key.namespace, key.name))
    if group is None:
        return []
    members = {
        one["metadata"]["uid"]
        for one in store.of(PODS).values()
        if (other := group_member(one)) is not None and other.group == key
    }
    claims = map(claim_from, store.of(CLAIMS).values())
    ready = members & {one.pod_uid for one in claims if one.allocation is not None}
    if len(ready) >= group["spec"]["minMember"]:
        return []
    name = event.after["metadata"]["name"]
    return [f"pod {name} is bound while {len(ready)} pods of its group have devices"]


def _devices_of(claim: Object) -> list[str]:
    allocation = claim_from(claim).allocation
    devices = allocation.devices if allocation is not None else ()
    return sorted(f"{one.id.pool}/{one.id.device}" for one in devices)


WATCHED = (NODES, POOLS, SLICES, TEMPLATES, POD_GROUPS, CLAIMS, PODS, BIND_REQUESTS)


@asynccontextmanager
async def watch_history(kube: Kube) -> AsyncIterator[StackHistory]:
    """The history from now on; the block starts when all kinds were listed."""
    history = StackHistory()
    started = {resource: asyncio.Event() for resource in WATCHED}

    async def follow(resource: Resource) -> None:
        async for event in kube.watch(resource):
            history.apply(resource, event)
            started[resource].set()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(follow(resource)) for resource in WATCHED]
        try:
            for event in started.values():
                await event.wait()
            yield history
        finally:
            for task in tasks:
                task.cancel()


async def listed(kube: Kube, *further: Resource) -> dict[Resource, Listed]:
    """All objects of the watched and ``further`` kinds. Raises KubeUnavailableError."""
    return {resource: await kube.list(resource) for resource in (*WATCHED, *further)}
