"""Deletes derived templates that have been unused for a while."""

import structlog

from dray.domain.errors import TemporaryError
from dray.kube.convert import revision_of
from dray.kube.ports import TEMPLATES, Kube, Object
from dray.runtime.clock import Clock
from dray_claim_controller.deciding.templating import Garbage
from dray_claim_controller.observe.watching import Watching


class Collector:
    """Looks every ``every_s`` seconds."""

    def __init__(
        self, kube: Kube, watching: Watching, clock: Clock, *, after_s: float, every_s: float
    ) -> None:
        self._kube = kube
        self._watching = watching
        self._clock = clock
        self._every_s = every_s
        self._after_s = after_s
        self._since_s: dict[str, float] = {}

    async def run(self) -> None:
        """Collect until cancelled."""
        while True:
            await self.collect()
            await self._clock.sleep(self._every_s)

    async def collect(self) -> None:
        """Delete what is due; a template that changed meanwhile stays."""
        due = self._watching.ask(
            Garbage(
                after_s=self._after_s,
                now_s=self._clock.monotonic_s(),
                since_s=self._since_s,
            )
        )
        self._since_s = due.since_s
        known = self._watching.picture.plain[TEMPLATES.plural]
        # As they are now: each deletion is waited for, and any of the others may go meanwhile.
        for name, template in [(name, known[name]) for name in due.now]:
            await self._delete(name, template)

    async def _delete(self, name: str, template: Object) -> None:
        metadata = template["metadata"]
        try:
            await self._kube.delete(
                TEMPLATES,
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                resource_version=revision_of(template),
            )
        except TemporaryError as error:
            structlog.get_logger().warning("template not deleted", template=name, error=str(error))
        else:
            structlog.get_logger().info("unused template deleted", template=name)
