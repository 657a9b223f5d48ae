"""Keeps the picture: one watch per kind, and word to whoever waits for a change."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import structlog

from dray.domain.claims import GivenUp
from dray.kube.ports import (
    CLAIMS,
    PODS,
    TAINT_RULES,
    TAINT_RULES_BETA,
    Deleted,
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
from dray_claim_controller.cache.object_cache import ObjectCache, convert, version_of
from dray_claim_controller.cache.resources import WATCHED
from dray_claim_controller.cache.rule_recorder import A, RecordedRule, RuleRecorder

_MOST_CAUSES = 10_000
_RULES_ASKED_EVERY_S = 60.0
_AGAIN_S = 1.0
Listener = Callable[[Resource, WatchEvent], None]


class Informers:
    """The picture and its watches."""

    def __init__(self, kube: Kube, cache: ObjectCache, notes: Notes | None = None) -> None:
        self.cache = cache
        self._recorder = RuleRecorder(cache, notes)
        self.listeners: list[Listener] = []
        """Called with every event, once the picture has it."""
        self._kube = kube
        self._causes: OrderedDict[str, str] = OrderedDict()
        self._complained: dict[FactKey, str] = {}
        self._changed = asyncio.Event()
        self._rules: Resource | None = None
        """The version in which DeviceTaintRules are served; None: in none."""

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in WATCHED:
                watch = self._watch_rules if resource is TAINT_RULES else self._watch
                group.create_task(watch(resource), name=f"watch-{resource.plural}")

    async def synced(self) -> None:
        """Wait until everything was listed once."""
        while not self.cache.synced:
            await self.changed()

    async def relist(self) -> None:
        """Bring the picture up to the server's newest state: watches may be behind."""
        for resource in WATCHED:
            if resource is not TAINT_RULES:
                await self._apply(resource, await self._kube.list(resource))
            elif self._rules is not None:
                await self._apply(resource, await self._kube.list(self._rules))
        self._wake()

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
        """Fold the answer to an own write."""
        self._recorder.apply_response(resource, obj)
        self._wake()

    def caused(self, claim_uid: str, cause: str) -> None:
        """What is written on the claim now, and told by its next fact, was caused by the message
        of this id."""
        if cause:
            self._causes[claim_uid] = cause
        while len(self._causes) > _MOST_CAUSES:
            self._causes.popitem(last=False)

    def cause_of(self, claim_uid: str) -> str:
        """The message that caused the claim's next fact, if it was one; then forgotten."""
        return self._causes.pop(claim_uid, "")

    def evaluate(self, question: RecordedRule[A]) -> A:
        """The pure code's answer from the picture."""
        return self._recorder.evaluate(question)

    def give_up(self, claim_uid: str, record: GivenUp | None) -> None:
        """Attempts of a claim are given up though that can't be written on it; None: what was
        given up before is forgotten."""
        self._recorder.give_up(claim_uid, record)
        self._wake()

    def wake(self) -> None:
        """Have everybody who waits for a change look again."""
        self._wake()

    async def refresh_claim(self, uid: str, namespace: str, name: str) -> None:
        """Read a claim from the server; one that is gone or replaced leaves the picture."""
        cached = self.cache.claims.get(uid)
        await self._refresh(CLAIMS, uid, namespace, name, None if cached is None else cached.object)

    async def refresh_pod(self, uid: str, namespace: str, name: str) -> None:
        """Read a pod from the server; one that is gone or replaced leaves the picture."""
        cached = self.cache.pods.get(uid)
        await self._refresh(PODS, uid, namespace, name, None if cached is None else cached.object)

    async def _refresh(
        self, resource: Resource, uid: str, namespace: str, name: str, known: Object | None
    ) -> None:
        try:
            obj = await self._kube.get(resource, name, namespace)
        except NotServedError as error:
            # Such as one of several API servers that is of an older release.
            raise KubeUnavailableError(str(error)) from error
        except NotFoundError:
            obj = None
        if obj is not None:
            self._recorder.apply_response(resource, obj)
        if (obj is None or obj["metadata"]["uid"] != uid) and known:
            self._recorder.apply(resource, Deleted(known))
        self._wake()

    def _complain(self) -> None:
        for key in self.cache.take_noted():
            known = self.cache.unreadable.get(key)
            if known is None:
                self._complained.pop(key, None)
            elif self._complained.get(key) != known.why:
                self._complained[key] = known.why
                structlog.get_logger().error(
                    "an object can't be read; what it holds counts as far as that can be read",
                    resource=known.resource.plural,
                    namespace=known.namespace,
                    name=known.name,
                    why=known.why,
                )

    async def _watch_rules(self, resource: Resource) -> None:
        """Of DeviceTaintRules there are none as long as they aren't served; a server may be another
        one later."""
        while self._rules is None:
            try:
                self._rules = await self._served_rules()
            except KubeError as error:
                structlog.get_logger().warning("DeviceTaintRules are unknown", error=str(error))
                await asyncio.sleep(_AGAIN_S)
                continue
            if self._rules is None:
                if resource.plural not in self.cache.listed:
                    self._recorder.apply(resource, Listed((), 0))
                    self._wake()
                await asyncio.sleep(_RULES_ASKED_EVERY_S)
        await self._watch(self._rules)

    async def _served_rules(self) -> Resource | None:
        for version in (TAINT_RULES, TAINT_RULES_BETA):
            try:
                await self._kube.list(version)
            except (NotFoundError, RefusedError):
                continue
            return version
        return None

    async def _watch(self, resource: Resource) -> None:
        while True:
            try:
                async for event in self._kube.watch(resource):
                    await self._fold(resource, event)
            except KubeError as error:
                structlog.get_logger().error(
                    "a watch is refused", kind=resource.kind, why=str(error)
                )
                await asyncio.sleep(_AGAIN_S)

    async def _apply(self, resource: Resource, event: WatchEvent) -> None:
        """Fold an event. A list is folded in one step, so that nobody sees a part of it; what costs
        most of that is done before, object by object, while other tasks run."""
        ready: dict[tuple[str, str], Any] = {}
        for obj in event.objects if isinstance(event, Listed) else ():
            ready[version_of(obj)] = convert(resource, obj)
            await asyncio.sleep(0)
        self._recorder.apply(resource, event, ready)

    async def _fold(self, resource: Resource, event: WatchEvent) -> None:
        await self._apply(resource, event)
        self._complain()
        for listener in self.listeners:
            listener(resource, event)
        self._wake()

    def _wake(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()
