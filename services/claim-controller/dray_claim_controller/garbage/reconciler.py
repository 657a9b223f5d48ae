"""Deletes derived templates that have been unused for a while."""

import asyncio

import structlog

from dray.kube.convert import revision_of
from dray.kube.ports import TEMPLATES, Kube, NotFoundError, Object
from dray.runtime.clock import Clock
from dray_claim_controller.garbage.decisions import Garbage
from dray_claim_controller.informers import Informers
from dray_claim_controller.work_queue import FairWorkQueue


class GarbageReconciler:
    """Looks every ``every_s`` seconds. A template that can't be deleted is tried again, later each
    time, as long as it is unused; it delays no other."""

    def __init__(
        self, kube: Kube, informers: Informers, clock: Clock, *, after_s: float, every_s: float
    ) -> None:
        self._kube = kube
        self._informers = informers
        self._clock = clock
        self._every_s = every_s
        self._after_s = after_s
        self._since_s: dict[str, float] = {}
        self._due: dict[str, Object] = {}
        """Templates that have been unused for long enough, by ``namespace/name``."""
        self._queue = FairWorkQueue(
            clock,
            self._delete,
            name="unused-templates",
            group_of=lambda name: name.partition("/")[0],
            first_s=every_s,
        )

    async def run(self) -> None:
        """Collect until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="delete-templates")
            group.create_task(self._reconcile_forever(), name="look-for-unused")

    async def _reconcile_forever(self) -> None:
        while True:
            self.scan()
            await self._clock.sleep(self._every_s)

    def scan(self) -> None:
        """Find what is due; it is deleted unless it is in use again, or was changed, by then."""
        due = self._informers.evaluate(
            Garbage(
                after_s=self._after_s,
                now_s=self._clock.monotonic_s(),
                since_s=self._since_s,
            )
        )
        known = self._informers.cache.plain[TEMPLATES.plural]
        self._since_s, self._due = due.since_s, {name: known[name] for name in due.now}
        for name in self._due:
            self._queue.add(name)

    async def _delete(self, name: str) -> None:
        if (template := self._due.get(name)) is None:
            return
        metadata = template["metadata"]
        try:
            await self._kube.delete(
                TEMPLATES,
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                resource_version=revision_of(template),
            )
        except NotFoundError:
            # Somebody else has deleted it, maybe with its namespace.
            return
        structlog.get_logger().info("unused template deleted", template=name)
