"""Hands pods over with their pool, and evicts pods of late allocations by kube-scheduler."""

import asyncio
from dataclasses import dataclass

import structlog

from dray.kube.ports import NODES, PODS, Kube
from dray.runtime.clock import Clock
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.informers import Informers
from dray_claim_controller.owners.decisions import LateAllocation, LateAllocations, StrandedPods
from dray_claim_controller.pod_events import ReportEvent
from dray_claim_controller.publication.publisher import Publisher
from dray_claim_controller.work_queue import FairWorkQueue

_LOOKED_AT_S = 3600.0
"""How long after a recall to check for double allocations: no write is in flight for longer."""


@dataclass(frozen=True, slots=True)
class _Due:
    """A pod to hand over, or to evict because of a late allocation."""

    namespace: str
    uid: str
    sale: LateAllocation | None


class OwnerReconciler:
    """Scans every ``every_s`` seconds."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        publisher: Publisher,
        clock: Clock,
        *,
        warn: ReportEvent,
        writes: ExecutionWrites,
        every_s: float,
        allocates: bool = True,
    ) -> None:
        self._kube = kube
        self._informers = informers
        self._publisher = publisher
        self._clock = clock
        self._warn = warn
        self._every_s = every_s
        self._allocates = allocates
        """Whether kube-scheduler allocates devices."""
        self._writes = writes
        self._queue = FairWorkQueue(
            clock, self._do, name="owners", group_of=lambda due: due.namespace, first_s=every_s
        )
        self._due: dict[_Due, None] = {}
        """Due by the last scan."""
        self._warned: dict[str, None] = {}

    async def run(self) -> None:
        """Keep until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="hand-over")
            group.create_task(self._reconcile_forever(), name="look-at-owners")

    async def _reconcile_forever(self) -> None:
        while True:
            self.scan()
            await self._clock.sleep(self._every_s)

    def scan(self) -> None:
        """Find what is due. A pod that can't be written delays no other."""
        waiting = self._informers.evaluate(StrandedPods())
        self._warn_unbindable(waiting.unbindable)
        found = [(uid, None) for uid in waiting.gated] if self._allocates else []
        recalled = self._recalled()
        sales = self._informers.evaluate(LateAllocations(recalled=recalled)) if recalled else ()
        late = [(uid, sale) for sale in sales for uid in sale.pods]
        self._due = {}
        for uid, sale in (*found, *late):
            cached = self._informers.cache.pods.get(uid)
            if cached is not None and cached.pod is not None:
                self._due[_Due(cached.pod.namespace, uid, sale)] = None
        for due in self._due:
            self._queue.add(due)

    async def _do(self, due: _Due) -> None:
        if due not in self._due:
            return
        if due.sale is None:
            await self._lift_gate(due.uid)
        else:
            await self._undo(due.uid, due.sale)

    def _warn_unbindable(self, uids: tuple[str, ...]) -> None:
        for uid in uids:
            if uid in self._warned:
                continue
            cached = self._informers.cache.pods[uid]
            pool = "" if cached.pod is None else cached.pod.pool
            self._warn(
                cached,
                "OwnerChanged",
                f"GPUPool {pool} is now owned by kube-scheduler, and this pod was admitted for "
                "dray's own scheduler (spec.schedulerName can't change): delete the pod and "
                "create it again",
            )
        self._warned = dict.fromkeys(uids)

    async def _lift_gate(self, uid: str) -> None:
        cached = self._informers.cache.pods.get(uid)
        if cached is None or cached.pod is None:
            return
        structlog.get_logger().info("handing over", pod=cached.pod.name, pool=cached.pod.pool)
        self._informers.apply_response(PODS, await self._writes.lift_gate(cached, cached.pod))

    def _recalled(self) -> tuple[tuple[str, float], ...]:
        """Nodes whose devices were reclaimed not long ago, and when."""
        facts_unix_s = self._publisher.now_unix_s()
        # These are compared with times from Kubernetes. The facts' time falls behind the wall clock
        # while nobody leads, and it began with a wall clock that may have been wrong. The earlier
        # time is the safe one: the latest allocations are ended first, and no more than necessary.
        ahead_s = min(0.0, self._clock.now_unix_s() - facts_unix_s)
        nodes = self._informers.cache.plain[NODES.plural]
        return tuple(
            (name, recalled_unix_s + ahead_s)
            for name, recalled_unix_s in self._publisher.recalled().items()
            if name in nodes and facts_unix_s - recalled_unix_s < _LOOKED_AT_S
        )

    async def _undo(self, uid: str, sale: LateAllocation) -> None:
        cached = self._informers.cache.pods.get(uid)
        if cached is None or cached.pod is None:
            return
        structlog.get_logger().error(
            "double allocation: evicting the later claim's pod",
            device=str(sale.device),
            claim=sale.claim,
            pod=f"{cached.pod.namespace}/{cached.pod.name}",
        )
        self._warn(
            cached,
            "DoubleSale",
            f"kube-scheduler allocated {sale.device} to claim {sale.claim} after dray had "
            "taken the device over and given it to another claim; this pod is evicted, "
            "create it again",
        )
        pod = cached.pod
        await self._kube.evict(pod.name, pod.namespace, uid=pod.uid)
