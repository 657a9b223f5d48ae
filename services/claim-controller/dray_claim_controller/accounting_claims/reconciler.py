"""Makes the claims that account for the devices of pods without claims."""

import asyncio
from typing import Final

import structlog

from dray.kube.ports import CLAIMS, AlreadyExistsError, Kube, RefusedError
from dray.runtime.clock import Clock
from dray_claim_controller.accounting_claims.decisions import AccountingClaim, lacks_claim
from dray_claim_controller.cache.changes import Unread
from dray_claim_controller.informers import Informers
from dray_claim_controller.pod_events import ReportEvent
from dray_claim_controller.templates.decisions import Unusable
from dray_claim_controller.work_queue import FairWorkQueue

_LOOKED_AT_ONCE: Final = 1000


class AccountingClaimReconciler:
    """Makes the claim of each pod that lacks it. A claim that can't be made delays no other, and is
    tried again at least every five minutes."""

    def __init__(
        self, kube: Kube, informers: Informers, clock: Clock, *, warn: ReportEvent
    ) -> None:
        self._kube = kube
        self._informers = informers
        self._warn = warn
        self._unread: Unread[str] = Unread()
        self._queue = FairWorkQueue(
            clock, self._make, name="accounting-claims", group_of=lambda pod: pod[0]
        )

    async def run(self) -> None:
        """Look at all pods there are, then at every pod that changes, until cancelled."""
        cache = self._informers.cache
        self._unread.add(cache.pods)
        with cache.changed_pods.subscribed(self._unread):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue.run(), name="make-claims")
                group.create_task(self._reconcile_forever(), name="look-for-pods-without-claim")

    async def _reconcile_forever(self) -> None:
        cache = self._informers.cache
        while True:
            for uid in self._unread.take(_LOOKED_AT_ONCE):
                cached = cache.pods.get(uid)
                if cached is not None and cached.pod is not None and lacks_claim(cache, cached):
                    self._queue.add((cached.pod.namespace, uid))
            if not self._unread:
                await self._informers.changed()
            await asyncio.sleep(0)

    async def _make(self, pod: tuple[str, str]) -> None:
        """Make the claim if the pod still lacks it. Raises any KubeError: it is tried again."""
        namespace, uid = pod
        match self._informers.evaluate(AccountingClaim(pod_uid=uid)):
            case None:
                return
            case Unusable(message):
                self._warn(self._informers.cache.pods[uid], "ShapeUnusable", message)
                return
            case wanted:
                name = wanted["metadata"]["name"]
        try:
            made = await self._kube.create(CLAIMS, wanted, namespace)
        except AlreadyExistsError:
            made = await self._kube.get(CLAIMS, name, namespace)
        except RefusedError as error:
            if (cached := self._informers.cache.pods.get(uid)) is not None:
                why = f"the claim that accounts for its GPUs can't be made: {error}"
                self._warn(cached, "ClaimNotMade", why)
            raise
        structlog.get_logger().info("accounting claim made", claim=f"{namespace}/{name}")
        self._informers.apply_response(CLAIMS, made)
