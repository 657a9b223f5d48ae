"""Counts the pods of a row that have a node."""

import asyncio
import time
from collections.abc import Callable

from benchmarks.control_plane_fleet import NAMESPACE
from dray.kube.ports import PODS, Changed, Kube, Listed

_REPORT_EVERY = 500


class Bound:
    """Counts the pods that have a node."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._uids: set[str] = set()
        self._more = asyncio.Event()
        self.last_s = 0.0
        """When the last one was seen to be bound."""

    @property
    def count(self) -> int:
        """Pods that have a node."""
        return len(self._uids)

    async def run(self) -> None:
        """Watch until cancelled."""
        selector = "spec.nodeName!="
        async for event in self._kube.watch(PODS, NAMESPACE, field_selector=selector):
            before = self.count
            match event:
                case Listed(objects):
                    self._uids.update(one["metadata"]["uid"] for one in objects)
                case Changed(one):
                    self._uids.add(one["metadata"]["uid"])
            if self.count > before:
                self.last_s = time.monotonic()
                self._more.set()

    async def until(
        self, count: int, within_s: float, reported: Callable[[int], None] = lambda count: None
    ) -> bool:
        """Wait for ``count`` pods; returns whether they were bound in time. ``reported`` is called
        every 500 pods."""
        outcome = self.count
        try:
            async with asyncio.timeout(within_s):
                while self.count < count:
                    await self._more.wait()
                    self._more.clear()
                    if self.count >= outcome + _REPORT_EVERY:
                        outcome = self.count
                        reported(outcome)
        except TimeoutError:
            return False
        return True
