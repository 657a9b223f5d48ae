"""Makes and releases the claims that account for the devices of pods without claims."""

import asyncio
from typing import Final

import structlog

from dray.kube.ports import CLAIMS, AlreadyExistsError, Kube, RefusedError
from dray.runtime.clock import Clock
from dray_claim_controller.accounting_claims.decisions import (
    AccountingClaim,
    claim_to_release,
    lacks_claim,
)
from dray_claim_controller.cache.changes import Unread
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.informers import Informers
from dray_claim_controller.pod_events import ReportEvent
from dray_claim_controller.templates.decisions import Unusable
from dray_claim_controller.work_queue import FairWorkQueue

_LOOKED_AT_ONCE: Final = 1000


class AccountingClaimReconciler:
    """Makes the missing claims of pods, and releases the devices of pods that have ended:
    kube-controller-manager does so only for claims that a pod names. A claim that can't be written
    delays no other, and is tried again at least every five minutes."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        clock: Clock,
        *,
        writes: ExecutionWrites,
        warn: ReportEvent,
    ) -> None:
        self._kube = kube
        self._informers = informers
        self._writes = writes
        self._warn = warn
        self._unread: Unread[str] = Unread()
        self._queue = FairWorkQueue(
            clock, self._serve, name="accounting-claims", group_of=lambda pod: pod[0]
        )

    async def run(self) -> None:
        """Look at all existing pods, then at every pod that changes, until cancelled."""
        cache = self._informers.cache
        self._unread.add(cache.pods)
        with cache.changed_pods.subscribed(self._unread):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue.run(), name="write-claims")
                group.create_task(self._reconcile_forever(), name="look-at-pods-without-claims")

    async def _reconcile_forever(self) -> None:
        cache = self._informers.cache
        while True:
            for uid in self._unread.take(_LOOKED_AT_ONCE):
                cached = cache.pods.get(uid)
                if cached is None or cached.pod is None:
                    continue
                if lacks_claim(cache, cached) or claim_to_release(cache, cached) is not None:
                    self._queue.add((cached.pod.namespace, uid))
            if not self._unread:
                await self._informers.changed()
            await asyncio.sleep(0)

    async def _serve(self, pod: tuple[str, str]) -> None:
        """Make the claim if the pod still lacks it, or release its devices if the pod has ended.
        Raises any KubeError: it is tried again."""
        namespace, uid = pod
        cache = self._informers.cache
        cached = cache.pods.get(uid)
        if cached is not None and (held := claim_to_release(cache, cached)) is not None:
            self._informers.apply_response(CLAIMS, await self._writes.clear(held))
            return
        await self._make(namespace, uid)

    async def _make(self, namespace: str, uid: str) -> None:
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
                why = f"the claim that accounts for it can't be made: {error}"
                self._warn(cached, "ClaimNotMade", why)
            raise
        structlog.get_logger().info("accounting claim made", claim=f"{namespace}/{name}")
        self._informers.apply_response(CLAIMS, made)
