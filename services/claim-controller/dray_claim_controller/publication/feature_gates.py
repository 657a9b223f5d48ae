"""Keeps the fact about what the API server keeps up to date: servers are upgraded, and gates are
switched, while dray runs."""

from collections.abc import Callable

import msgspec
import structlog

from dray.bus.ports import BusUnavailableError
from dray.kube.ports import Kube, KubeError
from dray.kube.probe import probe
from dray.messages.facts import ClusterObserved
from dray.runtime.clock import Clock
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.publication.publisher import Publisher


class FeatureGateReconciler:
    """Probes when its term begins, and again whenever another server may answer: after the API
    server was away or failed, when it reports another version, and every ``ask_every_s`` seconds,
    because it may have been restarted with other feature gates between two looks. The version only
    says when to probe; the fact contains only what the probe shows."""

    def __init__(
        self,
        kube: Kube,
        publisher: Publisher,
        clock: Clock,
        *,
        namespace: str,
        look_every_s: float,
        ask_every_s: float,
        allocating_scheduler: bool = True,
    ) -> None:
        self.known = ClusterObserved(revision=0)
        """The newest answer."""
        self._allocating_scheduler = allocating_scheduler
        self._kube = kube
        self._publisher = publisher
        self._clock = clock
        self._namespace = namespace
        self._look_every_s = look_every_s
        self._ask_every_s = ask_every_s
        self._asked_s = 0.0
        self._doubted = False
        """Whether the newest answer may be of another server."""

    async def begin(self, revision: int) -> None:
        """Probe, or go on with what was published last until the server answers.

        Raises BusUnavailableError: the answer was not published.
        """
        try:
            await self.publish_probe(revision)
        except KubeError as error:
            self._doubted = True
            last = self._publisher.last(FactKey(ClusterObserved.NAME, ""))
            if isinstance(last, ClusterObserved):
                self.known = last
            structlog.get_logger().error(
                "the feature gates of the API server are unknown", why=str(error)
            )

    async def publish_probe(self, revision: int) -> None:
        """Probe, and publish the answer unless it is known.

        Raises:
            KubeError: the server did not answer.
            BusUnavailableError: the answer was not published.
        """
        found = await probe(self._kube, self._namespace, revision=revision, classes=False)
        # No dry run shows whether kube-scheduler allocates, so that is a setting.
        found = msgspec.structs.replace(
            found, allocating_scheduler=self._allocating_scheduler, waits_for_devices=True
        )
        await self._publisher.publish_fact(FactKey(found.NAME, ""), found)
        self._log_change(found)
        self.known, self._asked_s = found, self._clock.monotonic_s()

    async def run(self, revision: Callable[[], int]) -> None:
        """Look until cancelled; ``revision`` is the newest that was seen of any object."""
        while True:
            await self._clock.sleep(self._look_every_s)
            try:
                if self._doubted or await self._may_be_another():
                    self._doubted = True
                    await self.publish_probe(revision())
                    self._doubted = False
            except (KubeError, BusUnavailableError) as error:
                self._doubted = True
                structlog.get_logger().info(
                    "the feature gates of the API server are unknown", why=str(error)
                )

    async def _may_be_another(self) -> bool:
        version = await self._kube.version()
        age_s = self._clock.monotonic_s() - self._asked_s
        return version != self.known.version or age_s >= self._ask_every_s

    def _log_change(self, found: ClusterObserved) -> None:
        if not self.known.revision:
            return
        changed = {
            name: getattr(found, name)
            for name in found.__struct_fields__
            if name != "revision" and getattr(found, name) != getattr(self.known, name)
        }
        if changed:
            structlog.get_logger().info(
                "the feature gates of the API server have changed", **changed
            )
