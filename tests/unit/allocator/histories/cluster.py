"""What must hold in every history, and at its end."""

from random import Random
from typing import Any

from tests.unit.allocator.histories.replicas import Replica, Replicas
from tests.unit.allocator.histories.truth import NODES, POOLS

from dray.api.claims import AllocatedDevice
from dray.api.devices import DeviceId
from dray.api.quantities import parse_quantity
from dray.messages.checkpoints import NO_PARTS
from dray.messages.decisions import Checkpoint, Decided, NodeLeft, Opened
from dray_allocator.core.handle import handle, recompute
from dray_allocator.cycle.records import next_attempt
from dray_allocator.devices.usage import UsageLedger
from dray_allocator.state.domain import Stage
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen, RecordSeen

CAPACITY = {"virtual_tflops": "312", "virtual_vram": "40Gi"}
"""Of every card."""


class Cluster(Replicas):
    """A cluster that can be judged."""

    def shares(self) -> dict[DeviceId, list[AllocatedDevice]]:
        """What is taken of each device by committed statuses, as they are; who only looks on as an
        administrator takes nothing."""
        found: dict[DeviceId, list[AllocatedDevice]] = {}
        for claim in self.claims.values():
            for share in claim.allocation.devices if claim.allocation else ():
                if not share.admin_access:
                    found.setdefault(share.id, []).append(share)
        return found

    def no_device_is_oversold(self) -> None:
        """Committed statuses never exceed a card."""
        for device, shares in self.shares().items():
            for key, total in CAPACITY.items():
                taken = sum(parse_quantity(one.consumed.get(key, "0")).nano for one in shares)
                assert taken <= parse_quantity(total).nano, (device, key)

    def counters_are_sums(self) -> None:
        """What a replica counts of each device is what its claims sum up to, and never less
        than nothing."""
        for replica in self.replicas:
            held, summed = replica.state.device_usage, UsageLedger()
            if held.version == replica.checked:
                continue
            replica.checked = held.version
            for uid, allocation in held.claims():
                summed.set(uid, allocation)
            for node in NODES:
                for card in replica.state.published.of(node).cards:
                    use, again = held.of(card.id), summed.of(card.id)
                    assert (use.shares, use.whole) == (again.shares, again.whole)
                    assert min(use.shares, use.whole, *use.used.values(), 0) == 0
                    assert _something(use.used) == _something(again.used)

    def indexes_are_whole(self) -> None:
        """No domain is forgotten that an event may concern."""
        for replica in self.replicas:
            index = replica.state.index
            for name, domain in replica.state.domains.items():
                for uid in (*domain.unsettled, *domain.current.claims):
                    assert name in index.claims[uid]
                for uid in domain.current.pods:
                    assert name in index.pods[uid]
                if domain.serving and domain.has_work(goes_on=True):
                    assert name in replica.state.busy_domains
            domains = replica.state.domains
            assert index.appending.keys() == {name for name in domains if domains[name].appended}
            all_complete = all(map(replica.state.complete, replica.state.domains.values()))
            assert replica.state.all_complete() == all_complete

    def check_rebuilding(self) -> None:
        """With the logs lost, what claims' statuses say is what was held, without what was only
        reserved; read from the last fact of each object, as a new reader gets them."""
        rebuilt = self.rebuilt()
        allocated = {
            uid: claim.allocation for uid, claim in self.claims.items() if claim.allocation
        }
        assert dict(rebuilt.device_usage.claims()) == allocated
        for replica in self.replicas:
            held = dict(replica.state.device_usage.claims())
            assert {uid: held.get(uid) for uid in allocated} == allocated
            reserved = {made.claim_uid for made in replica.state.reservations()}
            assert held.keys() - allocated.keys() <= reserved
            facts, again = replica.state.facts, rebuilt.facts
            assert (facts.claims, facts.pods, facts.nodes) == (
                again.claims,
                again.pods,
                again.nodes,
            )

    def rebuilt(self) -> AllocatorState:
        """What a new reader knows, who gets the last fact of each object and no log."""
        rebuilt = AllocatorState(self.replicas[0].state.options)
        for sequence in self.stored():
            handle(rebuilt, FactSeen(sequence, self.facts[sequence - 1], more=True))
        return rebuilt

    def check_replays(self) -> None:
        """From the streams alone, the same state and the same records follow."""
        while self.late:
            self.come_up(Random(0))
        for replica in self.replicas:
            self.catch_up(replica)
        fresh = Replica("fresh", self.OPTIONS)
        self.catch_up(fresh)
        for node in NODES:
            for one in fresh.state.published.of(node).cards:
                assert fresh.state.device_usage.double_allocation(one.id, one) == ""
        for replica in self.replicas:
            assert dict(replica.state.device_usage.claims()) == dict(
                fresh.state.device_usage.claims()
            )
            assert sorted(replica.state.assumed_pods.pods()) == sorted(
                fresh.state.assumed_pods.pods()
            )
            for pool, domain in fresh.state.domains.items():
                assert replica.state.domains[pool].confirmed == domain.confirmed
        for pool in POOLS:
            self.replay(pool)
            self.replay(pool, first=self.first[pool])
            self.check_checkpoints(pool)

    def check_checkpoints(self, pool: str) -> None:
        """Who begins at any checkpoint knows what counts as well as who reads all other records."""
        parts, first = NO_PARTS, 0
        for sequence, record in enumerate(self.logs[pool], 1):
            parts = parts.followed_by(record)
            first = sequence if len(parts.parts) == 1 else first
            if parts.is_complete:
                self.check_checkpoint(pool, first)

    def check_checkpoint(self, pool: str, first: int) -> None:
        whole, fresh = (Replica("whole", self.OPTIONS), Replica("fresh", self.OPTIONS))
        for replica in (whole, fresh):
            for sequence, fact in enumerate(self.facts, 1):
                handle(replica.state, FactSeen(sequence, fact, more=True))
        for sequence, record in enumerate(self.logs[pool], 1):
            if isinstance(record, Checkpoint):
                head = {"facts_sequence": record.facts_sequence, "now_unix_s": record.now_unix_s}
                inert = Opened(domain=pool, epoch=1, writer="", **head)
                handle(whole.state, RecordSeen(pool, 1, sequence, inert))
            else:
                handle(whole.state, RecordSeen(pool, 1, sequence, record))
            if sequence >= first:
                handle(fresh.state, RecordSeen(pool, 1, sequence, record))
        assert what_counts(fresh.state, pool) == what_counts(whole.state, pool)

    def replay(self, pool: str, first: int = 1) -> None:
        """Every decision, and that a node left, is computed again from the facts and records
        before it.

        A node that came from another pool may hold what only that pool's log tells: such a
        decision is not compared, as ``dray replay`` compares none that is entangled.
        ``first``: sequence of the record to begin with.
        """
        state = AllocatorState(self.replicas[0].state.options)
        elsewhere = self.nodes_of_other_logs(pool)
        facts = 0
        for sequence, record in enumerate(self.logs[pool][first - 1 :], first):
            while facts < record.facts_sequence:
                facts += 1
                handle(state, FactSeen(facts, self.facts[facts - 1], more=True))
            entangled = any(state.facts.serves(node, pool) for node in elsewhere)
            is_whole = state.domains[pool].current.is_whole if sequence > 1 else True
            if isinstance(record, Decided | NodeLeft) and not entangled and is_whole:
                assert recompute(state, record) == record
            handle(state, RecordSeen(pool, 1, sequence, record, more=True))

    def nodes_of_other_logs(self, pool: str) -> set[str]:
        """Where another pool ever decided."""
        logs = (log for name, log in self.logs.items() if name != pool)
        decided = (record for log in logs for record in log if isinstance(record, Decided))
        return {pod.node for record in decided for pod in record.pods}


def what_counts(state: AllocatorState, pool: str) -> dict[str, Any]:
    """What decisions of a pool depend on of its log."""
    domain, facts = state.domains[pool], state.facts
    log = domain.current
    return {
        "whole": log.is_whole and domain.read,
        "sequences": (log.sequence, log.facts_sequence),
        "use": dict(state.device_usage.claims()),
        "assumed": {uid: state.assumed_pods.on(NODES[0]) for uid in state.assumed_pods.pods()},
        "alive": {uid: one for uid, one in log.claims.items() if one.stage is not Stage.OVER},
        "unsettled": sorted(
            uid
            for uid in domain.unsettled
            if uid not in log.claims or log.claims[uid].stage is not Stage.OVER
        ),
        "attempts": {
            uid: next_attempt(domain, claim)
            for uid, claim in facts.claims.items()
            if facts.pool_of(claim) == pool
        },
        "pods": log.pods,
        "reasons": {
            uid: (one.reasons, one.now_unix_s, one.namespace, one.name)
            for uid, one in log.waiting.items()
            if uid in facts.pods
        },
        "excluded": {
            (uid, node): since_unix_s
            for uid, nodes in log.excluded.items()
            for node, since_unix_s in nodes.items()
            if facts.age_s(since_unix_s) < state.options.exclusion_s
        },
        "left": {
            node: revision
            for node, revision in log.left.items()
            if node in facts.nodes
            and facts.nodes[node].node.leaving == pool
            and revision >= facts.nodes[node].node.leaving_since  # not of an earlier leave
        },
        "learned": domain.learned,
    }


def _something(used: dict[str, int]) -> dict[str, int]:
    return {key: amount for key, amount in used.items() if amount}
