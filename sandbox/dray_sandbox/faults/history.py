"""Every change of Kubernetes' objects during a run, in one order, and what they may not show.

The versions of all kinds come from one counter, so changes that several watches told sort
into the order in which they were written.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dray.kube.convert import claim_from
from dray.kube.memory_store import Event, Key, MemoryStore
from dray.kube.ports import CLAIMS, Changed, Deleted, Listed, Object, Resource, WatchEvent
from dray_sandbox.chaos.invariants import Judge


@dataclass(frozen=True, slots=True)
class Change:
    """An object as it became; None: it is gone."""

    version: int
    resource: Resource
    key: Key
    object: Object | None


@dataclass(slots=True)
class History:
    """What the watches told."""

    changes: list[Change] = field(default_factory=list)
    _now: dict[Resource, dict[Key, Object]] = field(default_factory=dict)

    def tell(self, resource: Resource, event: WatchEvent) -> None:
        """Take an event of the watch of a kind.

        What a watch missed before it had to list again is taken to have happened right after
        it was last seen, so that nobody is accused wrongly.
        """
        match event:
            case Listed(objects):
                self._relisted(resource, objects)
            case Changed(obj):
                self._put(resource, obj)
            case Deleted(obj):
                self._drop(resource, _key(obj), version_of(obj))

    def is_at(self, resource: Resource, objects: Iterable[Object]) -> bool:
        """Whether this is what it has seen of a kind."""
        seen = {key: version_of(obj) for key, obj in self._now.get(resource, {}).items()}
        return seen == {_key(obj): version_of(obj) for obj in objects}

    def judged(self) -> Judge:
        """What an observer of every change has to say; ``violations`` should be empty."""
        judge = new_judge()
        for change in sorted(self.changes, key=lambda change: change.version):
            here = judge.store.of(change.resource)
            before = here.get(change.key)
            if change.object is None:
                here.pop(change.key, None)
            else:
                here[change.key] = change.object
            if before is None and change.object is None:
                continue
            event = Event(change.resource, before, change.object)
            if change.resource == CLAIMS:
                judge.violations.extend(_moved(event))
            judge.see(event)
        return judge

    def _relisted(self, resource: Resource, objects: tuple[Object, ...]) -> None:
        known = self._now.setdefault(resource, {})
        now = {_key(obj): obj for obj in objects}
        for key, before in list(known.items()):
            last = version_of(before)
            if key not in now or before["metadata"]["uid"] != now[key]["metadata"]["uid"]:
                self._drop(resource, key, last)
            elif resource == CLAIMS and _is_moved(before, now[key]):
                self.changes.append(Change(last, resource, key, _unallocated(now[key])))
        for obj in objects:
            self._put(resource, obj)

    def _put(self, resource: Resource, obj: Object) -> None:
        key, version = _key(obj), version_of(obj)
        known = self._now.setdefault(resource, {})
        if key not in known or version_of(known[key]) < version:
            known[key] = obj
            self.changes.append(Change(version, resource, key, obj))

    def _drop(self, resource: Resource, key: Key, version: int) -> None:
        if self._now.setdefault(resource, {}).pop(key, None) is not None:
            self.changes.append(Change(version, resource, key, None))


def new_judge() -> Judge:
    """One that has seen nothing."""
    return Judge(MemoryStore(lambda: 0.0))


def judge_of(listed: dict[Resource, Listed]) -> Judge:
    """One that has seen only what there is now."""
    history = History()
    for resource, there in listed.items():
        history.tell(resource, there)
    return history.judged()


def version_of(obj: Object) -> int:
    """``metadata.resourceVersion``, by which changes of all kinds are ordered."""
    return int(obj["metadata"]["resourceVersion"])


def _key(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _moved(event: Event) -> list[str]:
    """An allocation is taken back before there is another."""
    before, after = event.before, event.after
    if before is None or after is None or not _is_moved(before, after):
        return []
    if not (_places(before) and _places(after)):
        return []
    name = after["metadata"]["name"]
    return [
        f"claim {name} was moved from {_places(before)} to {_places(after)} "
        "without being taken back in between"
    ]


def _is_moved(before: Object, after: Object) -> bool:
    same = before["metadata"]["uid"] == after["metadata"]["uid"]
    return same and _places(before) != _places(after)


def _places(claim: Object) -> list[str]:
    allocation = claim_from(claim).allocation
    devices = allocation.devices if allocation is not None else ()
    return sorted(f"{one.id.pool}/{one.id.device}" for one in devices)


def _unallocated(claim: Object) -> Object:
    status = {name: value for name, value in claim["status"].items() if name != "allocation"}
    return {**claim, "status": status}
