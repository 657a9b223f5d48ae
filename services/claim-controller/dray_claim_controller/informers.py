"""One watch per kind keeps the cache current, and wakes tasks that wait for a change."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

import structlog

from dray.api.claims import Claim, GivenUp
from dray.kube.ports import (
    CLAIMS,
    PODS,
    POOLS,
    Kube,
    KubeError,
    KubeUnavailableError,
    Listed,
    NotFoundError,
    NotServedError,
    Object,
    RefusedError,
    Resource,
    WatchEvent,
)
from dray.recording.journal import Notes
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.resources import OPTIONAL, WATCHED
from dray_claim_controller.cache.rule_recorder import A, RecordedRule, RuleRecorder

_MOST_CAUSES = 10_000
_LOOKED_FOR_EVERY_S = 60.0
_AGAIN_S = 1.0
_FOLDED_AT_ONCE = 50
"""Events of a watch that are applied in one step."""
Listener = Callable[[Resource, WatchEvent], None]


class Informers:
    """The cache and its watches."""

    def __init__(self, kube: Kube, cache: ObjectCache, notes: Notes | None = None) -> None:
        self.cache = cache
        self._recorder = RuleRecorder(cache, notes)
        self.listeners: list[Listener] = []
        """Called with every event, after the cache has applied it."""
        self._kube = kube
        self._causes: OrderedDict[str, str] = OrderedDict()
        self._complained: dict[FactKey, str] = {}
        self._changed = asyncio.Event()
        self._served: dict[str, Resource] = {}
        """The served versions of optional kinds, by plural."""
        self._restored: dict[Resource, int] = {}
        """Kinds whose list was older than the known state, with the revision from which on a list
        is complete."""

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in WATCHED:
                is_optional = resource.plural in OPTIONAL
                watch = self._watch_if_served if is_optional else self._watch
                group.create_task(watch(resource), name=f"watch-{resource.plural}")
            group.create_task(self._list_restored(), name="list-restored")

    async def synced(self) -> None:
        """Wait until all kinds were listed once."""
        while not self.cache.synced:
            await self.changed()

    async def relist(self, kinds: Iterable[Resource] = WATCHED) -> None:
        """List kinds again, because their watches may be behind."""
        for resource in kinds:
            is_optional = resource.plural in OPTIONAL
            served = self._served.get(resource.plural) if is_optional else resource
            if served is not None:
                transform = self._recorder.transform(served)
                await self._apply(resource, await self._kube.list(served, transform=transform))
        self._wake()

    async def list_claims(self, label_selector: str) -> list[Claim]:
        """List claims from the server's newest state, without what the cache adds to them; the
        cache has them then. Raises KubeError."""
        transform = self._recorder.transform(CLAIMS)
        listed = await self._kube.list(CLAIMS, label_selector=label_selector, transform=transform)
        for one in listed.objects:
            self._recorder.apply_listed_response(CLAIMS, one)
        self._wake()
        uids = (one["metadata"]["uid"] if transform is None else one.uid for one in listed.objects)
        found = (self.cache.claims.get(uid) for uid in uids)
        return [cached.as_written for cached in found if cached is not None]

    async def changed(self, timeout_s: float | None = None) -> bool:
        """Wait for the next change; False after ``timeout_s`` without one."""
        event = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True

    def apply_response(self, resource: Resource, obj: Object) -> None:
        """Apply the response to an own write."""
        self._recorder.apply_response(resource, obj)
        self._wake()

    def caused(self, claim_uid: str, cause: str) -> None:
        """Name the message (by id) that causes the claim's next write, and so its next fact."""
        if cause:
            self._causes[claim_uid] = cause
        while len(self._causes) > _MOST_CAUSES:
            self._causes.popitem(last=False)

    def cause_of(self, claim_uid: str) -> str:
        """The id of the message that caused the claim's next fact, or empty; then forgotten."""
        return self._causes.pop(claim_uid, "")

    def evaluate(self, rule: RecordedRule[A]) -> A:
        """The rule's answer for the cache."""
        return self._recorder.evaluate(rule)

    def give_up(self, claim_uid: str, record: GivenUp | None) -> None:
        """Record that attempts of a claim are given up although the claim can't be written; None:
        remove that record."""
        self._recorder.give_up(claim_uid, record)
        self._wake()

    def wake(self) -> None:
        """Wake all tasks that wait for a change."""
        self._wake()

    async def refresh_claim(self, uid: str, namespace: str, name: str) -> None:
        """Read a claim from the server; one that is gone or replaced leaves the cache."""
        cached = self.cache.claims.get(uid)
        await self._refresh(CLAIMS, uid, namespace, name, None if cached is None else cached.object)

    async def refresh_pod(self, uid: str, namespace: str, name: str) -> None:
        """Read a pod from the server; one that is gone or replaced leaves the cache."""
        cached = self.cache.pods.get(uid)
        await self._refresh(PODS, uid, namespace, name, None if cached is None else cached.object)

    async def _refresh(
        self, resource: Resource, uid: str, namespace: str, name: str, known: Object | None
    ) -> None:
        try:
            obj = await self._kube.get(resource, name, namespace)
        except NotServedError as error:
            # One of several API servers may be of an older release.
            raise KubeUnavailableError(str(error)) from error
        except NotFoundError:
            obj = None
        if obj is not None:
            self._recorder.apply_response(resource, obj)
        if (obj is None or obj["metadata"]["uid"] != uid) and known:
            self._recorder.apply_missing(resource, known)
        self._wake()

    def _complain(self) -> None:
        for key in self.cache.take_noted():
            known = self.cache.unreadable.get(key)
            if known is None:
                self._complained.pop(key, None)
            elif self._complained.get(key) != known.why:
                self._complained[key] = known.why
                structlog.get_logger().error(
                    "an object can't be read; devices that it is known to hold stay allocated",
                    resource=known.resource.plural,
                    namespace=known.namespace,
                    name=known.name,
                    why=known.why,
                )

    async def _watch_if_served(self, resource: Resource) -> None:
        """Watch a kind once it is served; until then there are no such objects."""
        while (served := self._served.get(resource.plural)) is None:
            try:
                served = await self._version_served(resource)
            except KubeError as error:
                structlog.get_logger().warning(
                    "it is unknown whether a kind is served",
                    resource=resource.plural,
                    error=str(error),
                )
                await asyncio.sleep(_AGAIN_S)
                continue
            if served is not None:
                self._served[resource.plural] = served
                break
            if resource.plural not in self.cache.listed:
                self._recorder.apply(resource, Listed((), 0))
                self._wake()
            await asyncio.sleep(_LOOKED_FOR_EVERY_S)
        await self._watch(served)

    async def _version_served(self, resource: Resource) -> Resource | None:
        for version in OPTIONAL[resource.plural]:
            try:
                await self._kube.list(version)
            except (NotFoundError, RefusedError):
                continue
            return version
        return None

    async def _watch(self, resource: Resource) -> None:
        while True:
            try:
                transform, number = self._recorder.transform(resource), 0
                async for event in self._kube.watch(resource, transform=transform):
                    await self._fold(resource, event)
                    number += 1
                    if number % _FOLDED_AT_ONCE == 0:  # Many may have arrived together.
                        await asyncio.sleep(0)
            except KubeError as error:
                structlog.get_logger().error(
                    "a watch is refused", kind=resource.kind, why=str(error)
                )
                await asyncio.sleep(_AGAIN_S)

    async def _list_restored(self) -> None:
        """List kinds again once an API server whose store was restored from a backup has reached
        the revision that it had before. Up to then an object that a list lacks may be newer."""
        while True:
            while self._restored:
                await asyncio.sleep(_AGAIN_S)
                due: dict[Resource, int] = {}
                with self._retried():
                    reached = (await self._kube.list(POOLS)).resource_version
                    due = {kind: at for kind, at in self._restored.items() if at <= reached}
                for kind, at in due.items():
                    with self._retried():  # One that is not served any more keeps no other back.
                        await self.relist((kind,))
                        if self._restored[kind] == at:  # It was not restored again meanwhile.
                            del self._restored[kind]
            await self.changed()

    @staticmethod
    @contextlib.contextmanager
    def _retried() -> Iterator[None]:
        try:
            yield
        except KubeError as error:
            structlog.get_logger().info("not listed again yet", error=str(error))

    async def _apply(self, resource: Resource, event: WatchEvent) -> None:
        if isinstance(event, Listed):
            for _ in self._recorder.apply_list(resource, event):
                await asyncio.sleep(0)
        else:
            self._recorder.apply(resource, event)

    async def _fold(self, resource: Resource, event: WatchEvent) -> None:
        if isinstance(event, Listed) and event.is_older:
            self._restored[resource] = self.cache.revision
        await self._apply(resource, event)
        self._complain()
        for listener in tuple(self.listeners):
            listener(resource, event)
        self._wake()

    def _wake(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()
