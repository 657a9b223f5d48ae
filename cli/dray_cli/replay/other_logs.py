"""Decisions in other domains' logs on which a record may depend.

A node that changed pools may have an allocation from its old pool that was cleared and is not
voided yet. The allocation counts until it is voided, but only the old pool's log has it, and a
record does not say how far its writer had read other logs. Such records can't be replayed exactly.
"""

from collections.abc import Iterable

from dray.messages.decisions import Decided
from dray_allocator.state.state import AllocatorState
from dray_cli.replay.timeline import LogTimeline, records


class OtherLogs:
    """Decisions of other domains, by node."""

    def __init__(self, logs: Iterable[LogTimeline]) -> None:
        self._claims: dict[str, list[tuple[str, int]]] = {}
        self._pods: dict[str, list[str]] = {}
        for log in logs:
            for _, record in records(log):
                for pod in record.pods if isinstance(record, Decided) else ():
                    self._pods.setdefault(pod.node, []).append(pod.pod_uid)
                    attempts = self._claims.setdefault(pod.node, [])
                    attempts += [(claim.uid, claim.attempt) for claim in pod.claims]

    def may_count(self, state: AllocatorState, domain: str) -> bool:
        """Whether one of these decisions may still count on a node of the domain."""
        return any(
            self._claim_counts(state, node) or self._pod_counts(state, node)
            for node in self._pods
            if state.facts.serves(node, domain)
        )

    def _claim_counts(self, state: AllocatorState, node: str) -> bool:
        for uid, attempt in self._claims[node]:
            claim = state.facts.claims.get(uid)
            if claim is not None and claim.allocation is None and claim.void < attempt:
                return True
        return False

    def _pod_counts(self, state: AllocatorState, node: str) -> bool:
        counted = state.facts.nodes[node].counted
        return any(uid in state.facts.pods and uid not in counted for uid in self._pods[node])
