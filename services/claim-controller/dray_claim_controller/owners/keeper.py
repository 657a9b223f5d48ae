"""Hands pods over with their pool, and takes back what kube-scheduler allocated too late."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from dray.kube.ports import NODES, PODS, Kube
from dray.messages.facts import NodeObserved
from dray.runtime.clock import Clock
from dray_claim_controller.deciding.owning import CameLate, WhoIsStranded
from dray_claim_controller.execute.writes import ClaimWrites
from dray_claim_controller.observe.publisher import Publisher
from dray_claim_controller.observe.seen import Key, SeenPod
from dray_claim_controller.observe.watching import Watching
from dray_claim_controller.owners.rules import LateSale
from dray_claim_controller.work_queue import WorkQueue

_LOOKED_AT_S = 3600.0
"""How long after a recall double sales are looked for: nothing is in flight for that long."""
Tell = Callable[[SeenPod, str, str], None]
"""Reports (pod, reason, message) as a warning event."""


@dataclass(frozen=True, slots=True)
class _Due:
    """A pod that is to be handed over, or that has to go for a sale that came late."""

    namespace: str
    uid: str
    sale: LateSale | None


class OwnerKeeper:
    """Looks every ``every_s`` seconds."""

    def __init__(
        self,
        kube: Kube,
        watching: Watching,
        publisher: Publisher,
        clock: Clock,
        *,
        tell: Tell,
        writes: ClaimWrites,
        every_s: float,
        allocates: bool = True,
    ) -> None:
        self._kube = kube
        self._watching = watching
        self._publisher = publisher
        self._clock = clock
        self._tell = tell
        self._every_s = every_s
        self._allocates = allocates
        """Whether anybody takes the pods whose gate is lifted."""
        self._writes = writes
        self._queue = WorkQueue(
            clock, self._do, name="owners", group_of=lambda due: due.namespace, first_s=every_s
        )
        self._due: dict[_Due, None] = {}
        """What is due by the last look."""
        self._told: dict[str, None] = {}

    async def run(self) -> None:
        """Keep until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="hand-over")
            group.create_task(self._look_for_ever(), name="look-at-owners")

    async def _look_for_ever(self) -> None:
        while True:
            self.look()
            await self._clock.sleep(self._every_s)

    def look(self) -> None:
        """Find what is due. A pod that can't be written delays no other."""
        waiting = self._watching.ask(WhoIsStranded())
        self._tell_unbindable(waiting.unbindable)
        found = [(uid, None) for uid in waiting.gated] if self._allocates else []
        recalled = self._recalled()
        sales = self._watching.ask(CameLate(recalled=recalled)) if recalled else ()
        late = [(uid, sale) for sale in sales for uid in sale.pods]
        self._due = {}
        for uid, sale in (*found, *late):
            seen = self._watching.picture.pods.get(uid)
            if seen is not None and seen.pod is not None:
                self._due[_Due(seen.pod.namespace, uid, sale)] = None
        for due in self._due:
            self._queue.add(due)

    async def _do(self, due: _Due) -> None:
        if due not in self._due:
            return
        if due.sale is None:
            await self._lift_gate(due.uid)
        else:
            await self._undo(due.uid, due.sale)

    def _tell_unbindable(self, uids: tuple[str, ...]) -> None:
        for uid in uids:
            if uid in self._told:
                continue
            seen = self._watching.picture.pods[uid]
            pool = "" if seen.pod is None else seen.pod.pool
            self._tell(
                seen,
                "OwnerChanged",
                f"GPUPool {pool} is owned by kube-scheduler by now, and this pod was admitted for "
                "dray's own scheduler (spec.schedulerName can't change): delete the pod and "
                "create it again",
            )
        self._told = dict.fromkeys(uids)

    async def _lift_gate(self, uid: str) -> None:
        seen = self._watching.picture.pods.get(uid)
        if seen is None or seen.pod is None:
            return
        structlog.get_logger().info("handing over", pod=seen.pod.name, pool=seen.pod.pool)
        self._watching.answered(PODS, await self._writes.lift_gate(seen, seen.pod))

    def _recalled(self) -> tuple[tuple[str, float], ...]:
        """Nodes whose devices were taken back not long ago, and when."""
        facts_unix_s = self._publisher.now_unix_s()
        # Compared with times that Kubernetes has. The facts' time falls behind the wall clock
        # while nobody leads, and began with one that may have been wrong; the earlier moment is
        # the safe one, because the latest allocations go first, and no more than have to.
        ahead_s = min(0.0, self._clock.now_unix_s() - facts_unix_s)
        facts = (
            self._publisher.last(Key("node", name))
            for name in self._watching.picture.plain[NODES.plural]
        )
        return tuple(
            (fact.node.name, fact.recalled_unix_s + ahead_s)
            for fact in facts
            if isinstance(fact, NodeObserved)
            and fact.recalled_unix_s is not None
            and facts_unix_s - fact.recalled_unix_s < _LOOKED_AT_S
        )

    async def _undo(self, uid: str, sale: LateSale) -> None:
        seen = self._watching.picture.pods.get(uid)
        if seen is None or seen.pod is None:
            return
        structlog.get_logger().error(
            "double sale: evicting the later claim's pod",
            device=str(sale.device),
            claim=sale.claim,
            pod=f"{seen.pod.namespace}/{seen.pod.name}",
        )
        self._tell(
            seen,
            "DoubleSale",
            f"kube-scheduler allocated {sale.device} to claim {sale.claim} after dray had "
            "taken the device over and given it to another claim; this pod is evicted, "
            "create it again",
        )
        await self._kube.evict(seen.pod.name, seen.pod.namespace)
