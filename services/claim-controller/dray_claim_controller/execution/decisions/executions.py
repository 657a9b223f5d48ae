"""A domain's decision log, folded into what is still to be carried out. Pure."""

from dataclasses import dataclass, field, replace

from dray.messages.checkpoints import NO_PARTS, CheckpointParts
from dray.messages.decisions import (
    AnyRecord,
    Decided,
    DecidedGroup,
    NodeLeft,
    PodDecision,
    Release,
    Released,
    Waiting,
)
from dray.messages.facts import CheckpointPosition
from dray.messages.group_parts import NO_GROUP_PARTS, GroupParts

_COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class DecisionVersions:
    """The versions that a decision was based on, as its record names them."""

    policy_version: int
    """Generation of the pool's SchedulingConfigTemplate."""
    learned_version: int
    """The version of FragmentationAware's workload model; 0: there was none."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One pod's newest decision, and which of its claims the log calls committed."""

    domain: str
    decision: PodDecision
    committed: frozenset[str] = frozenset()
    traceparent: str = ""
    """Position of the decision in the pod's trace, from the record's header."""
    cause: str = ""
    """Id of the record's message."""
    by: DecisionVersions | None = None
    """None if its record is not available: a checkpoint sums it up, or its log is over."""
    decided_unix_s: float | None = None
    """The facts' time of the decision; None if its log is over."""

    @property
    def attempt(self) -> int:
        """The highest attempt of its claims."""
        return max((claim.attempt for claim in self.decision.claims), default=0)


@dataclass(slots=True)
class OpenExecutions:
    """The decisions of one domain and epoch that may still need work.

    A decision stays after its claims were released as committed, because the binding may be
    missing. It is removed when a claim was voided, withdrawn or deleted, and by ``finish``.
    """

    domain: str
    epoch: int
    sequence: int = 0
    """Last record folded."""
    stored: int = 0
    """Last record known to have been stored, folded or not."""
    open: dict[str, Execution] = field(default_factory=dict)
    """By pod UID."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """Newest reasons of pods that wait, by pod UID."""
    left: dict[str, int] = field(default_factory=dict)
    """Highest ``node_revision`` of the node-left records of each node."""
    checkpoints: tuple[CheckpointPosition, ...] = ()
    """Complete checkpoints of the log, oldest first: where readers may begin."""
    decided: tuple[str, ...] = ()
    """UIDs of the pods that the last record has decided."""
    _group_parts: GroupParts = NO_GROUP_PARTS
    """Parts of a decision on a group that is not complete yet."""
    _pod_of_claim: dict[str, str] = field(default_factory=dict)
    _parts: CheckpointParts = NO_PARTS
    _is_whole: bool = True
    """Whether it was read from the first record, or from a complete checkpoint."""

    def fold(
        self, sequence: int, record: AnyRecord, traceparent: str = "", cause: str = ""
    ) -> bool:
        """Apply one record; a record that was applied before changes nothing. Returns True if the
        record ends the checkpoint from which reading began: then everything open and waiting is
        new.

        ``traceparent`` and ``cause``, the message's id, came with the record; they don't affect
        what is to be done.
        """
        if sequence <= self.sequence:
            return False
        if sequence > self.sequence + 1:
            self._begin_again()
        self.sequence = sequence
        self.decided = ()
        group_parts = self._group_parts = self._group_parts.followed_by(record)
        match record:
            case DecidedGroup():
                if group_parts.is_complete:
                    self._decide_all(record, group_parts.pods, traceparent, cause)
            case Decided(pods=pods):
                self._decide_all(record, pods, traceparent, cause)
            case Waiting():
                self.waiting |= {one.pod_uid: one for one in record.by_pod()}
            case Released():
                for release in record.releases:
                    self._release(release)
            case NodeLeft():
                self.left[record.node] = max(self.left.get(record.node, 0), record.node_revision)
            case _:
                pass
        self._parts = self._parts.followed_by(record)
        return self._parts.is_complete and self._continue_from(sequence, record)

    def _begin_again(self) -> None:
        """Forget everything, because the earlier records are trimmed: a checkpoint replaces
        them."""
        self.open.clear()
        self.waiting.clear()
        self.left.clear()
        self._pod_of_claim.clear()
        self._parts, self._is_whole = NO_PARTS, False

    def _continue_from(self, sequence: int, record: AnyRecord) -> bool:
        """Remember the checkpoint that ends with this record, and begin with it if need be."""
        whole, self._parts = self._parts, NO_PARTS
        first = sequence - len(whole.parts) + 1
        position = CheckpointPosition(sequence=first, now_unix_s=record.now_unix_s)
        known = (one for one in self.checkpoints if one.sequence < first)
        self.checkpoints = (*known, position)
        if self._is_whole:
            self.waiting = {one.pod_uid: one for one in whole.waiting}
            return False
        self._begin_again()
        self._is_whole = True
        self.waiting = {one.pod_uid: one for one in whole.waiting}
        self.left = {one.node: one.node_revision for one in whole.left_nodes}
        reserved = {(one.uid, one.attempt): one for one in whole.reserved if one.stage != "over"}
        for pod in whole.in_flight:
            claims = [reserved.get((claim.uid, claim.attempt)) for claim in pod.claims]
            alive = [one for one in claims if one is not None]
            if len(alive) == len(claims):
                self._decide(
                    Execution(
                        self.domain,
                        pod,
                        frozenset(one.uid for one in alive if one.stage == _COMMITTED),
                        traceparent=pod.traceparent,
                        decided_unix_s=min((one.decided_unix_s for one in alive), default=None),
                    )
                )
        return True

    def pass_over(self, sequence: int) -> None:
        """A record that can't be decoded changes nothing."""
        self.sequence = max(self.sequence, sequence)

    def finish(self, pod_uid: str, attempt: int) -> None:
        """The decision of this attempt needs no more work."""
        execution = self.open.get(pod_uid)
        if execution is None or execution.attempt > attempt:
            return
        del self.open[pod_uid]
        for claim in execution.decision.claims:
            self._pod_of_claim.pop(claim.uid, None)

    def _decide_all(
        self, record: Decided, pods: tuple[PodDecision, ...], traceparent: str, cause: str
    ) -> None:
        by = DecisionVersions(record.policy_version, record.learned_version)
        for pod in pods:
            self._decide(
                Execution(
                    self.domain,
                    pod,
                    traceparent=traceparent,
                    cause=cause,
                    by=by,
                    decided_unix_s=record.now_unix_s,
                )
            )
        self.decided = tuple(pod.pod_uid for pod in pods)

    def _decide(self, execution: Execution) -> None:
        pod = execution.decision
        self.open[pod.pod_uid] = execution
        self.waiting.pop(pod.pod_uid, None)
        for claim in pod.claims:
            self._pod_of_claim[claim.uid] = pod.pod_uid

    def _release(self, release: Release) -> None:
        execution = self.open.get(self._pod_of_claim.get(release.claim_uid, ""))
        if execution is None or execution.attempt > release.attempt:
            return
        if release.why != _COMMITTED:
            self.finish(execution.decision.pod_uid, execution.attempt)
            return
        committed = execution.committed | {release.claim_uid}
        self.open[execution.decision.pod_uid] = replace(execution, committed=committed)
