"""Kubernetes in memory: the same port and rules as the real door, for tests and simulation."""

import asyncio
import copy
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from dray.kube.memory_patch import patched
from dray.kube.memory_rules import check_binding
from dray.kube.memory_selectors import matcher
from dray.kube.memory_store import Event, MemoryStore
from dray.kube.ports import (
    CLAIMS,
    PODS,
    Changed,
    ConflictError,
    Deleted,
    KubeUnavailableError,
    Listed,
    NotFoundError,
    Object,
    PatchType,
    Resource,
    WatchEvent,
)

Hook = Callable[[Resource, str], Awaitable[None]]
"""Awaited before a call, with the kind and the object's name (empty for lists)."""


class MemoryKube:
    """One client of an in-memory API server; ``peer`` makes further ones of the same server.

    For tests: ``fail_next``; ``before[method]``, a hook that may hold a caller asleep;
    ``hold_watches`` makes this client's caches stale until ``release_watches``;
    ``expire_watches`` answers every watch of the server with 410, so that it lists again;
    ``collect_garbage`` deletes what has lost its owners.
    """

    def __init__(
        self, store: MemoryStore | None = None, *, now_unix_s: Callable[[], float] = time.time
    ) -> None:
        self.store = store or MemoryStore(now_unix_s)
        self.before: dict[str, Hook] = {}
        self.git_version = "v1.36.3"
        self._faults: dict[str, deque[tuple[Exception, bool]]] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()

    def peer(self) -> "MemoryKube":
        """Another client of the same server, with hooks and faults of its own."""
        return MemoryKube(self.store)

    def fail_next(self, method: str, error: Exception, *, after: bool = False) -> None:
        """Make the next call of ``method`` raise, before or after it has done its work."""
        self._faults.setdefault(method, deque()).append((error, after))

    def hold_watches(self) -> None:
        """Deliver nothing more to this client's watches until ``release_watches``."""
        self._flowing.clear()

    def release_watches(self) -> None:
        """Undo ``hold_watches``."""
        self._flowing.set()

    def expire_watches(self) -> None:
        """Every watch lists again, as after 410."""
        self.store.expiry += 1
        self.store.wake()

    def collect_garbage(self) -> int:
        """Delete objects all of whose owners are gone; how many."""
        count = 0
        while orphans := list(self._orphans()):
            for resource, obj in orphans:
                self.store.delete(resource, obj, 0)
            count += len(orphans)
        return count

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """See ``Kube.get``."""
        await self._enter("get", resource, name)
        return copy.deepcopy(self.store.get(resource, name, namespace))

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listed:
        """See ``Kube.list``."""
        await self._enter("list", resource, "")
        return self._list(resource, matcher(namespace, label_selector, field_selector))

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvent]:
        """See ``Kube.watch``."""
        wanted = matcher(namespace, label_selector, field_selector)
        while True:
            await self._flowing.wait()
            try:
                await self._enter("watch", resource, "")
            except KubeUnavailableError:
                continue
            expiry = self.store.expiry
            position = len(self.store.events)
            yield self._list(resource, wanted)
            while expiry == self.store.expiry:
                changed = self.store.changed
                if position == len(self.store.events):
                    await changed.wait()
                    await self._flowing.wait()
                    continue
                event = self.store.events[position]
                position += 1
                if event.resource == resource and (seen := _seen(event, wanted)) is not None:
                    await self._flowing.wait()
                    yield seen

    async def create(
        self, resource: Resource, obj: Object, namespace: str = "", *, dry_run: bool = False
    ) -> Object:
        """See ``Kube.create``."""
        metadata = obj.get("metadata") or {}
        await self._enter("create", resource, metadata.get("name", ""))
        made = self.store.create(resource, obj, namespace, dry_run)
        self._leave("create")
        return made

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        """See ``Kube.update``."""
        metadata = obj["metadata"]
        await self._enter("update", resource, metadata["name"])
        old = self.store.get(resource, metadata["name"], metadata.get("namespace", ""))
        written = self.store.write(resource, old, obj, subresource)
        self._leave("update")
        return written

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        namespace: str = "",
        *,
        kind: PatchType = "merge",
        subresource: str = "",
    ) -> Object:
        """See ``Kube.patch``."""
        await self._enter("patch", resource, name)
        written = self._patch(resource, name, patch, namespace, kind, subresource)
        self._leave("patch")
        return written

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: int | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """See ``Kube.delete``."""
        await self._enter("delete", resource, name)
        try:
            old = self.store.get(resource, name, namespace)
        except NotFoundError:
            return
        metadata = old["metadata"]
        wanted = {"uid": uid or metadata["uid"]}
        if resource_version is not None:
            wanted["resourceVersion"] = str(resource_version)
        for field, value in wanted.items():
            if metadata[field] != value:
                raise ConflictError(
                    f'Precondition failed: {field} of {resource.plural} "{name}" is '
                    f"{metadata[field]}, not {value}"
                )
        self.store.delete(resource, old, grace_period_s)
        self._leave("delete")

    async def bind(
        self, pod: str, namespace: str, *, uid: str, node: str, resource_version: int | None = None
    ) -> None:
        """See ``Kube.bind``."""
        await self._enter("bind", PODS, pod)
        old = self.store.get(PODS, pod, namespace)
        check_binding(old, uid, resource_version)
        # Past the rules of an update: only a binding may set the node.
        self.store.bind(old, node)
        self._leave("bind")

    async def evict(self, pod: str, namespace: str) -> None:
        """See ``Kube.evict``; budgets are up to ``fail_next``."""
        await self._enter("evict", PODS, pod)
        self.store.delete(PODS, self.store.get(PODS, pod, namespace), None)
        self._leave("evict")

    async def version(self) -> str:
        """See ``Kube.version``."""
        await self._enter("version", PODS, "")
        return self.git_version

    async def served_versions(self, group: str) -> tuple[str, ...]:
        """See ``Kube.served_versions``."""
        return (CLAIMS.version,) if group == CLAIMS.group else ()

    async def close(self) -> None:
        """See ``Kube.close``."""

    def _list(self, resource: Resource, wanted: Callable[[Object], bool]) -> Listed:
        found = sorted(self.store.of(resource).items())
        return Listed(
            tuple(copy.deepcopy(obj) for _, obj in found if wanted(obj)), self.store.revision
        )

    def _patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str,
        kind: PatchType,
        subresource: str,
    ) -> Object:
        try:
            old = self.store.get(resource, name, namespace)
        except NotFoundError:
            if kind != "apply":
                raise
            return self.store.create(resource, {**patch}, namespace, False)
        return self.store.write(resource, old, patched(old, patch, kind), subresource)

    def _orphans(self) -> Sequence[tuple[Resource, Object]]:
        alive = {
            obj["metadata"]["uid"] for kind in self.store.objects.values() for obj in kind.values()
        }
        return [
            (resource, obj)
            for resource, kind in self.store.objects.items()
            for obj in kind.values()
            if (owners := obj["metadata"].get("ownerReferences"))
            and not any(owner["uid"] in alive for owner in owners)
            and "deletionTimestamp" not in obj["metadata"]
        ]

    async def _enter(self, method: str, resource: Resource, name: str) -> None:
        if (hook := self.before.get(method)) is not None:
            await hook(resource, name)
        self._raise_fault(method, after=False)

    def _leave(self, method: str) -> None:
        self._raise_fault(method, after=True)

    def _raise_fault(self, method: str, *, after: bool) -> None:
        faults = self._faults.get(method)
        if faults and faults[0][1] is after:
            raise faults.popleft()[0]


def _seen(event: Event, wanted: Callable[[Object], bool]) -> WatchEvent | None:
    """What a watch with a selector sees of a change: leaving the selection is a deletion."""
    if event.after is not None and wanted(event.after):
        return Changed(copy.deepcopy(event.after))
    if event.before is not None and wanted(event.before):
        return Deleted(copy.deepcopy(event.after if event.after is not None else event.before))
    return None
