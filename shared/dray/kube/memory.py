"""Kubernetes in memory: the same port and rules as the real adapter, for tests and simulation."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from dray.kube.memory_copy import deep_copy
from dray.kube.memory_patch import patched
from dray.kube.memory_refusals import InjectedRefusal, KubeCall
from dray.kube.memory_rules import check_binding
from dray.kube.memory_selectors import matcher
from dray.kube.memory_store import Event, MemoryStore
from dray.kube.ports import (
    CLAIMS,
    EVENTS,
    NO_ANNOTATIONS,
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
    Transform,
    WatchEvent,
)

Hook = Callable[[Resource, str], Awaitable[None]]
"""Awaited before a call, with the kind and the object's name (empty for lists)."""
_WATCH_AGAIN_S: Final = 1.0


class MemoryKube:
    """One client of an in-memory API server. ``peer`` makes more clients of the same server.

    For tests: ``fail_next``; ``refuse`` for all clients, until withdrawn;
    ``before[method]`` is a hook that may make a caller wait;
    ``hold_watches`` makes this client's caches stale until ``release_watches``;
    ``expire_watches`` answers every watch of the server with 410, so that it lists again;
    ``collect_garbage`` deletes objects without owners.
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
        """Another client of the same server, with its own hooks and faults."""
        return MemoryKube(self.store)

    def fail_next(self, method: str, error: Exception, *, after: bool = False) -> None:
        """Make the next call of ``method`` raise, before or after it has done its work."""
        self._faults.setdefault(method, deque()).append((error, after))

    def refuse(self, refusal: InjectedRefusal) -> Callable[[], None]:
        """Make the server refuse this for every client, until the returned function is called."""
        refusals = self.store.refusals
        refusals.append(refusal)
        return lambda: refusals.remove(refusal)

    def hold_watches(self) -> None:
        """Deliver nothing more to this client's watches until ``release_watches``."""
        self._flowing.clear()

    def release_watches(self) -> None:
        """Undo ``hold_watches``."""
        self._flowing.set()

    def expire_watches(self) -> None:
        """Make every watch list again, as after a 410."""
        self.store.expire()

    def collect_garbage(self) -> int:
        """Delete objects all of whose owners are gone; return their number."""
        count = 0
        while orphans := list(self._orphans()):
            for resource, obj in orphans:
                self.store.delete(resource, obj, 0)
            count += len(orphans)
        return count

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """See ``Kube.get``."""
        await self._enter(KubeCall("get", resource, name, namespace))
        return deep_copy(self.store.get(resource, name, namespace))

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform | None = None,
    ) -> Listed:
        """See ``Kube.list``."""
        await self._enter(KubeCall("list", resource, "", namespace))
        return self._list(resource, matcher(namespace, label_selector, field_selector), transform)

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """See ``Kube.watch``."""
        wanted = matcher(namespace, label_selector, field_selector)
        while True:
            await self._flowing.wait()
            try:
                await self._enter(KubeCall("watch", resource, "", namespace))
            except KubeUnavailableError:
                await asyncio.sleep(_WATCH_AGAIN_S)
                continue
            expiry, feed = self.store.expiry, self.store.open_feed(resource)
            try:
                yield self._list(resource, wanted, transform)
                while expiry == self.store.expiry:
                    if not feed.events:
                        feed.changed.clear()
                        await feed.changed.wait()
                        await self._flowing.wait()
                    elif (seen := _seen(feed.events.popleft(), wanted)) is not None:
                        await self._flowing.wait()
                        yield seen
            finally:
                self.store.close_feed(feed)

    async def create(
        self, resource: Resource, obj: Object, namespace: str = "", *, dry_run: bool = False
    ) -> Object:
        """See ``Kube.create``."""
        metadata = obj.get("metadata") or {}
        place = namespace or metadata.get("namespace", "")
        request = KubeCall("create", resource, metadata.get("name", ""), place)
        await self._enter(request)
        made = self.store.create(resource, obj, namespace, dry_run)
        self._leave(request)
        return made

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        """See ``Kube.update``."""
        name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
        request = KubeCall("update", resource, name, namespace, subresource)
        await self._enter(request)
        old = self.store.get(resource, name, namespace)
        written = self.store.write(resource, old, obj, subresource)
        self._leave(request)
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
        timeout_s: float | None = None,
    ) -> Object:
        """See ``Kube.patch``."""
        request = KubeCall("patch", resource, name, namespace, subresource, timeout_s)
        await self._enter(request)
        written = self._patch(resource, name, patch, namespace, kind, subresource)
        self._leave(request)
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
        request = KubeCall("delete", resource, name, namespace)
        await self._enter(request)
        try:
            old = self.store.get(resource, name, namespace)
        except NotFoundError:
            return
        metadata = old["metadata"]
        wanted = {"uid": uid or metadata["uid"]}
        if resource_version is not None:
            wanted["resourceVersion"] = str(resource_version)
        _check_preconditions(resource, old, wanted)
        self.store.delete(resource, old, grace_period_s)
        self._leave(request)

    async def bind(
        self,
        pod: str,
        namespace: str,
        *,
        uid: str,
        node: str,
        annotations: Mapping[str, str] = NO_ANNOTATIONS,
        resource_version: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """See ``Kube.bind``."""
        request = KubeCall("bind", PODS, pod, namespace, "binding", timeout_s)
        await self._enter(request)
        old = self.store.get(PODS, pod, namespace)
        check_binding(old, uid, resource_version)
        # Without the rules of an update: only a binding may set the node.
        self.store.bind(old, node, annotations)
        self._leave(request)

    async def evict(self, pod: str, namespace: str, *, uid: str) -> None:
        """See ``Kube.evict``. Budgets are not checked; tests use ``fail_next`` for them."""
        request = KubeCall("evict", PODS, pod, namespace, "eviction")
        await self._enter(request)
        old = self.store.get(PODS, pod, namespace)
        _check_preconditions(PODS, old, {"uid": uid})
        self.store.delete(PODS, old, None)
        self._leave(request)

    async def version(self) -> str:
        """See ``Kube.version``."""
        await self._enter(KubeCall("version", PODS))
        return self.git_version

    async def served_versions(self, group: str) -> tuple[str, ...]:
        """See ``Kube.served_versions``."""
        return (CLAIMS.version,) if group == CLAIMS.group else ()

    async def close(self) -> None:
        """See ``Kube.close``."""

    def _list(
        self, resource: Resource, wanted: Callable[[Object], bool], transform: Transform | None
    ) -> Listed:
        found = sorted(self.store.of(resource).items())
        copies = (deep_copy(obj) for _, obj in found if wanted(obj))
        return Listed(
            tuple(copies if transform is None else map(transform, copies)), self.store.revision
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
        # Events, the most numerous objects, neither have owners nor own anything.
        kinds = {one: kind for one, kind in self.store.objects.items() if one != EVENTS}
        alive = {obj["metadata"]["uid"] for kind in kinds.values() for obj in kind.values()}
        return [
            (resource, obj)
            for resource, kind in kinds.items()
            for obj in kind.values()
            if (owners := obj["metadata"].get("ownerReferences"))
            and not any(owner["uid"] in alive for owner in owners)
            and "deletionTimestamp" not in obj["metadata"]
        ]

    async def _enter(self, request: KubeCall) -> None:
        if (hook := self.before.get(request.method)) is not None:
            await hook(request.resource, request.name)
        self._raise_fault(request.method, after=False)
        await self._answer_refused(request)

    def _leave(self, request: KubeCall) -> None:
        self._raise_fault(request.method, after=True)
        for refusal in self.store.refusals:
            if refusal.after and refusal.meets(request):
                raise refusal.error.with_traceback(None)

    async def _answer_refused(self, request: KubeCall) -> None:
        for refusal in tuple(self.store.refusals):
            if refusal.after or not refusal.meets(request):
                continue
            if request.timeout_s is not None and refusal.delay_s > request.timeout_s:
                await asyncio.sleep(request.timeout_s)
                raise KubeUnavailableError(
                    f"{request.method} {request.resource.plural}/{request.name}: Timeout: request "
                    "did not complete within requested timeout"
                )
            if refusal.delay_s:
                await asyncio.sleep(refusal.delay_s)
            raise refusal.error.with_traceback(None)

    def _raise_fault(self, method: str, *, after: bool) -> None:
        faults = self._faults.get(method)
        if faults and faults[0][1] is after:
            raise faults.popleft()[0]


def _check_preconditions(resource: Resource, obj: Object, wanted: Mapping[str, str]) -> None:
    metadata = obj["metadata"]
    for field, value in wanted.items():
        if metadata[field] != value:
            raise ConflictError(
                f'Precondition failed: {field} of {resource.plural} "{metadata["name"]}" is '
                f"{metadata[field]}, not {value}"
            )


def _seen(event: Event, wanted: Callable[[Object], bool]) -> WatchEvent | None:
    """A change as a watch with a selector sees it: leaving the selection is a deletion."""
    if event.after is not None and wanted(event.after):
        return Changed(deep_copy(event.after))
    if event.before is not None and wanted(event.before):
        return Deleted(deep_copy(event.after if event.after is not None else event.before))
    return None
