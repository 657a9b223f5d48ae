"""Questions about what is published, and about what is written on pools and nodes. Pure."""

from typing import Any

from dray.domain.devices import Taint
from dray.kube.convert import node_from
from dray.kube.ports import NODES, POOLS
from dray.messages.facts import FACTS, Fact, NodeObserved, PoolObserved, SliceObserved
from dray_claim_controller.deciding.seam import Question
from dray_claim_controller.domains.stored_status import stored_status
from dray_claim_controller.observe.assignment import pools_of
from dray_claim_controller.observe.capacity import Hands, Log, is_news, pool_status
from dray_claim_controller.observe.facts import Known, fact_of
from dray_claim_controller.observe.membership import dedicated_taints
from dray_claim_controller.observe.outbox import plan
from dray_claim_controller.observe.owners import Recall
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.reduced import fitting
from dray_claim_controller.observe.seen import Key

FACT_OF: dict[str, type[Fact]] = {fact.NAME: fact for fact in FACTS}


class Publish(Question[tuple[Fact, ...]], frozen=True, kw_only=True, tag="publish"):
    """Which facts to publish about something that changed; none where all is said."""

    key: Key
    revision: int
    """Of the change."""
    before: Any = None
    """The last fact about it (a ``Fact``), tombstones included."""
    doubted: tuple[Any, ...] = ()
    """Later ones, of which it is unknown whether they are stored."""
    left: tuple[tuple[str, int], ...] = ()
    """Of nodes: highest node-left revision by domain."""
    closing: tuple[str, ...] = ()
    recall: Recall = Recall()
    """Of nodes."""
    limit_bytes: int = 0
    """What the bus takes at most, where the answer without a limit was too large; 0: not asked."""

    def answer(self, picture: Picture) -> tuple[Fact, ...]:
        before = self.before
        node = before if isinstance(before, NodeObserved) else None
        published, buried = (None, node) if node and node.deleted else (node, None)
        left = {(domain, self.key.identity): revision for domain, revision in self.left}
        fact = fact_of(picture, self.key, Known(published, left, self.closing, self.recall, buried))
        if fact is None and self.key.kind != SliceObserved.NAME and picture.is_unreadable(self.key):
            return ()  # It exists: what was last said of it stays.
        if not self.limit_bytes:
            return tuple(plan(self.key, before, fact, self.revision, self.doubted))
        reduced = None if fact is None else fitting(fact, self.limit_bytes)
        if fact is not None and reduced is None:
            return ()
        planned = plan(self.key, before, reduced, self.revision, self.doubted)
        fitted = (fitting(one, self.limit_bytes) for one in planned)
        return tuple(one for one in fitted if one is not None)


class Taints(Question[tuple[Taint, ...] | None], frozen=True, kw_only=True, tag="taints"):
    """Which taints a node of ``pool`` is to have, if not those it has."""

    node: str
    pool: str

    def answer(self, picture: Picture) -> tuple[Taint, ...] | None:
        obj = picture.plain[NODES.plural].get(self.node)
        kept = (Key(NodeObserved.NAME, self.node), Key(PoolObserved.NAME, self.pool))
        if obj is None or any(map(picture.is_unreadable, kept)):
            return None
        return dedicated_taints(node_from(obj).taints, pools_of(picture).get(self.pool))

    def polled(self) -> str:
        return f"taints/{self.node}"


class PoolStatus(Question[dict[str, Any] | None], frozen=True, kw_only=True, tag="pool-status"):
    """What a pool's status is to say, if it is news."""

    pool: str
    nodes: tuple[str, ...]
    epoch: int = 0
    """Of the log that was read; 0: none was."""
    sequence: int = 0
    now_unix_s: float
    moving: tuple[str, ...] = ()
    """Those of ``nodes`` whose devices are not in the hands yet in which the pool wants them."""
    allocates: bool = True
    """Whether the cluster's kube-scheduler allocates devices."""

    def answer(self, picture: Picture) -> dict[str, Any] | None:
        log = Log(self.epoch, self.sequence) if self.epoch else None
        pool = pools_of(picture)[self.pool]
        hands = Hands(self.moving, self.allocates)
        status = pool_status(picture, pool, self.nodes, log, self.now_unix_s, hands)
        before = stored_status(picture.plain[POOLS.plural][self.pool])
        return status if is_news(status, before) else None

    def polled(self) -> str:
        return f"pool-status/{self.pool}"
