"""Executions that wait for a change of their objects, without polling."""

import asyncio
from collections.abc import Iterable

from dray.kube.ports import CLAIMS, NODES, PODS, Changed, Deleted, Listed, Resource, WatchEvent
from dray.messages.decisions import PodDecision
from dray.runtime.clock import Clock
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.informers import Informers


class WatchWaiters:
    """Waiters by object. Listens to the watches only while there are waiters."""

    def __init__(self, informers: Informers, clock: Clock) -> None:
        self.number = 0
        """Number of waiters."""
        self._informers = informers
        self._clock = clock
        self._alarms: dict[str, dict[asyncio.Event, None]] = {}
        """By UID of the awaited object."""

    async def until_changed(self, uids: Iterable[str], delay_s: float) -> None:
        """Wait until the watch shows a change of one of these objects, or ``wake`` names one, or
        ``delay_s`` seconds have passed."""
        alarm, about = asyncio.Event(), tuple(dict.fromkeys(uids))
        clock = asyncio.ensure_future(self._clock.sleep(delay_s))
        clock.add_done_callback(lambda _: alarm.set())
        self._enter(alarm, about)
        try:
            await alarm.wait()
        finally:
            self._leave(alarm, about)
            clock.cancel()

    def wake(self, uid: str) -> None:
        """Wake the waiters of this object."""
        for alarm in self._alarms.get(uid, ()):
            alarm.set()

    def _enter(self, alarm: asyncio.Event, about: Iterable[str]) -> None:
        if not self._alarms:
            self._informers.listeners.append(self._heard)
        self.number += 1
        for uid in about:
            self._alarms.setdefault(uid, {})[alarm] = None

    def _leave(self, alarm: asyncio.Event, about: Iterable[str]) -> None:
        self.number -= 1
        for uid in about:
            self._alarms[uid].pop(alarm)
            if not self._alarms[uid]:
                del self._alarms[uid]
        if not self._alarms:
            self._informers.listeners.remove(self._heard)

    def _heard(self, resource: Resource, event: WatchEvent) -> None:
        match event:
            case Changed(obj) | Deleted(obj):
                self.wake(obj["metadata"]["uid"])
            case Listed() if resource in (CLAIMS, NODES, PODS):
                # Changes while there was no watch are in no event.
                for uid in self._alarms:
                    self.wake(uid)


def awaited_uids(cache: ObjectCache, decision: PodDecision) -> list[str]:
    """UIDs of the pod, its claims and its node."""
    uids = [decision.pod_uid, *(claim.uid for claim in decision.claims)]
    if (cached := cache.pods.get(decision.pod_uid)) is not None and cached.pod is not None:
        uids += [held.claim.uid for held in cache.every_claim_of(cached.pod)]
    if (node := cache.plain[NODES.plural].get(decision.node)) is not None:
        uids.append(node["metadata"]["uid"])
    return uids
