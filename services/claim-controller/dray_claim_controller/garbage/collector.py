"""Deletes derived templates that have been unused for a while."""

import structlog

from dray.domain.errors import TemporaryError
from dray.kube.convert import revision_of
from dray.kube.ports import TEMPLATES, Kube
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
        picture = self._watching.picture
        due = self._watching.ask(
            Garbage(
                after_s=self._after_s,
                now_s=self._clock.monotonic_s(),
                since_s=self._since_s,
            )
        )
        self._since_s = due.since_s
        for name in due.now:
            template = picture.plain[TEMPLATES.plural][name]
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
                structlog.get_logger().warning(
                    "template not deleted", template=name, error=str(error)
                )
            else:
                structlog.get_logger().info("unused template deleted", template=name)
