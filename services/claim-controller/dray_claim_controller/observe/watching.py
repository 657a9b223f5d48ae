"""Keeps the picture: one watch per kind, and word to whoever waits for a change."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

import structlog

from dray.kube.ports import (
    CLAIMS,
    PODS,
    Deleted,
    Kube,
    NotFoundError,
    Object,
    Resource,
    WatchEvent,
)
from dray.recording.journal import Notes
from dray_claim_controller.deciding.seam import A, Question, Seam
from dray_claim_controller.observe.kinds import WATCHED
from dray_claim_controller.observe.picture import Picture

_MOST_CAUSES = 10_000
Listener = Callable[[Resource, WatchEvent], None]


class Watching:
    """The picture and its watches."""

    def __init__(self, kube: Kube, picture: Picture, notes: Notes | None = None) -> None:
        self.picture = picture
        self._seam = Seam(picture, notes)
        self.listeners: list[Listener] = []
        """Called with every event, once the picture has it."""
        self._kube = kube
        self._causes: OrderedDict[str, str] = OrderedDict()
        self._complained: set[str] = set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in WATCHED:
                group.create_task(self._watch(resource), name=f"watch-{resource.plural}")

    async def synced(self) -> None:
        """Wait until everything was listed once."""
        while not self.picture.synced:
            await self.changed()

    async def relist(self) -> None:
        """Bring the picture up to the server's newest state: watches may be behind."""
        for resource in WATCHED:
            self._seam.apply(resource, await self._kube.list(resource))
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

    def answered(self, resource: Resource, obj: Object) -> None:
        """Fold the answer to an own write."""
        self._seam.answered(resource, obj)
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

    def ask(self, question: Question[A]) -> A:
        """The pure code's answer from the picture."""
        return self._seam.ask(question)

    def wake(self) -> None:
        """Have everybody who waits for a change look again."""
        self._wake()

    async def refresh_claim(self, uid: str, namespace: str, name: str) -> None:
        """Read a claim from the server; one that is gone or replaced leaves the picture."""
        seen = self.picture.claims.get(uid)
        await self._refresh(CLAIMS, uid, namespace, name, None if seen is None else seen.object)

    async def refresh_pod(self, uid: str, namespace: str, name: str) -> None:
        """Read a pod from the server; one that is gone or replaced leaves the picture."""
        seen = self.picture.pods.get(uid)
        await self._refresh(PODS, uid, namespace, name, None if seen is None else seen.object)

    async def _refresh(
        self, resource: Resource, uid: str, namespace: str, name: str, known: Object | None
    ) -> None:
        try:
            obj = await self._kube.get(resource, name, namespace)
        except NotFoundError:
            obj = None
        if obj is not None:
            self._seam.answered(resource, obj)
        if (obj is None or obj["metadata"]["uid"] != uid) and known:
            self._seam.apply(resource, Deleted(known))
        self._wake()

    def _complain(self) -> None:
        unreadable = self.picture.unreadable
        for label in unreadable.keys() - self._complained:
            structlog.get_logger().error(
                "an object can't be understood and is left out", object=label, why=unreadable[label]
            )
        self._complained = set(unreadable)

    async def _watch(self, resource: Resource) -> None:
        async for event in self._kube.watch(resource):
            self._seam.apply(resource, event)
            self._complain()
            for listener in self.listeners:
                listener(resource, event)
            self._wake()

    def _wake(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()
