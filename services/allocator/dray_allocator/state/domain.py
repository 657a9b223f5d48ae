"""A scheduling domain: the fold of its decision log, the appends not read back yet, and its queue.

The fold has reservations, exclusions, reasons and nodes that left. Its values are immutable, so
copying dicts copies it.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from dray.api.claims import Allocation, Claim
from dray.messages.checkpoints import NO_PARTS, CheckpointParts
from dray.messages.decisions import (
    AnyRecord,
    Checkpoint,
    ClaimDecision,
    Decided,
    DecidedGroup,
    GroupHold,
    Learned,
    NodeHold,
    NodeLeft,
    PodDecision,
    Release,
    Released,
    ReservedClaim,
    Waiting,
)
from dray.messages.group_parts import NO_GROUP_PARTS, GroupParts
from dray_allocator.scoring.fragmentation.score import NodeWorths
from dray_allocator.scoring.fragmentation.workload_model import WorkloadModel
from dray_allocator.state.facts import NOTHING, Changes
from dray_allocator.state.pending_groups import PendingGroups
from dray_allocator.state.scheduling_queue import SchedulingQueue


class Stage(StrEnum):
    """Stage of a reservation."""

    RESERVED = "held"
    """Messages and commands call this ``held``."""
    COMMITTED = "committed"
    """Released because ``status.allocation`` was seen."""
    OVER = "over"
    """Voided, or withdrawn after its allocation was cleared."""


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """The latest attempt of a claim."""

    claim_uid: str
    namespace: str
    name: str
    attempt: int
    pod_uid: str
    allocation: Allocation
    decided_unix_s: float
    node: str
    """The pod's node; other nodes may also be able to use the allocation."""
    stage: Stage = Stage.RESERVED


@dataclass(slots=True)
class LogFold:
    """The fold of one log up to ``sequence``."""

    sequence: int = 0
    facts_sequence: int = 0
    """The highest position of facts of any writer. A replica decides on this log only once it has
    read the facts up to that position."""
    checkpoint_unix_s: float = 0.0
    """Time of the log's start or of its last checkpoint."""
    since_checkpoint: int = 0
    claims: dict[str, Reservation] = field(default_factory=dict)
    pods: dict[str, PodDecision] = field(default_factory=dict)
    """The latest decision of each pod that still has a live claim."""
    sharers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By claim, the other pods of a group whose decisions also have the claim's latest attempt."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    excluded: dict[str, dict[str, float]] = field(default_factory=dict)
    """Per claim, the excluded nodes and the times of their exclusion."""
    left: dict[str, int] = field(default_factory=dict)
    """Per node, the revision with which it left the domain."""
    group_holds: dict[str, GroupHold] = field(default_factory=dict)
    """By UID of the PodGroup, what is held for a group that has lost pods."""
    held_claims: dict[str, Allocation] = field(default_factory=dict)
    """The same by claim: its former devices."""
    node_hold: NodeHold | None = None
    """Which nodes are held for a pod or group that has waited long."""
    held_nodes: dict[str, str] = field(default_factory=dict)
    """The same nodes, by the UID under which each counts as full."""
    learned: Learned | None = None
    """The workload model of the last decisions, if the policy learns."""
    parts: CheckpointParts = NO_PARTS
    """Parts of a checkpoint that is not complete yet."""
    group_parts: GroupParts = NO_GROUP_PARTS
    """The same for a decision on a group."""
    is_whole: bool = True
    """Whether everything up to ``sequence`` is known: the reader began with the first record, or
    has read a whole checkpoint since."""

    def copy(self) -> "LogFold":
        """An independent fold of the same records."""
        return replace(
            self,
            claims=dict(self.claims),
            pods=dict(self.pods),
            sharers=dict(self.sharers),
            waiting=dict(self.waiting),
            excluded={uid: dict(nodes) for uid, nodes in self.excluded.items()},
            left=dict(self.left),
            group_holds=dict(self.group_holds),
            held_claims=dict(self.held_claims),
            held_nodes=dict(self.held_nodes),
        )

    def fold(self, sequence: int, record: AnyRecord) -> Changes:
        """Fold the next record; return the claims and pods that it changes."""
        self._advance(sequence, record)
        if type(record) is Decided:  # Most records are decisions; a match costs more.
            self.learned = record.learned or self.learned
            return self.count(record.pods, record.now_unix_s)
        match record:
            case DecidedGroup():
                return self._decided_group(record)
            case Released():
                return self._released(record)
            case Waiting():
                self.waiting |= {one.pod_uid: one for one in record.by_pod()}
                return NOTHING
            case NodeLeft():
                self.left[record.node] = max(record.node_revision, self.left.get(record.node, 0))
                return NOTHING
            case Checkpoint():
                return self._checkpoint(record)
            case _:
                return NOTHING

    def fold_counted(self, sequence: int, record: Decided) -> None:
        """Fold the next record, whose decisions are assumed already."""
        self._advance(sequence, record)
        self.learned = record.learned or self.learned

    def _decided_group(self, record: DecidedGroup) -> Changes:
        """Count a decision once its last part is read."""
        parts = self.group_parts = self.group_parts.followed_by(record)
        if not parts.is_complete:
            return NOTHING
        self.group_parts = NO_GROUP_PARTS
        self.learned = record.learned or self.learned
        return self.count(parts.pods, record.now_unix_s)

    def _advance(self, sequence: int, record: AnyRecord) -> None:
        if self.sequence == 0:
            self.checkpoint_unix_s = record.now_unix_s
            self.is_whole = sequence == 1
        self.sequence = sequence
        self.parts = self.parts.followed_by(record)
        if type(record) is not DecidedGroup:
            self.group_parts = NO_GROUP_PARTS
        if record.facts_sequence > self.facts_sequence:
            self.facts_sequence = record.facts_sequence
        self.since_checkpoint += 1

    def count(self, pods: tuple[PodDecision, ...], now_unix_s: float) -> Changes:
        """Assume decisions, written or not."""
        claims: list[str] = []
        for pod in pods:
            claims += self.take(pod, now_unix_s)
        return Changes(tuple(claims), tuple([pod.pod_uid for pod in pods]))

    def take(self, pod: PodDecision, now_unix_s: float) -> list[str]:
        """Assume one decision; return the claims whose latest attempt it is."""
        pod_uid, node, reservations = pod.pod_uid, pod.node, self.claims
        self.pods[pod_uid] = pod
        self.waiting.pop(pod_uid, None)
        latest = []
        for claim in pod.claims:
            uid, attempt = claim.uid, claim.attempt
            known = reservations.get(uid)
            if known is not None and known.attempt == attempt and known.pod_uid != pod_uid:
                self.sharers[uid] = (*self.sharers.get(uid, ()), pod_uid)
            if known is None or known.attempt < attempt:
                self.sharers.pop(uid, None)
                latest.append(uid)
                reservations[uid] = Reservation(
                    uid,
                    claim.namespace,
                    claim.name,
                    attempt,
                    pod_uid,
                    claim.allocation,
                    now_unix_s,
                    node,
                )
        return latest

    def _released(self, record: Released) -> Changes:
        claims: list[str] = []
        pods: list[str] = []
        for release in record.releases:
            known = self.claims.get(release.claim_uid)
            if known is None or release.attempt < known.attempt:
                continue
            pods += self._end(known, release, record.now_unix_s)
            claims.append(known.claim_uid)
        for hold in record.holds:
            claims += self._set_group_hold(hold)
        if record.node_hold is not None:
            pods += self._set_node_hold(record.node_hold)
        return Changes(tuple(claims), tuple(dict.fromkeys(pods)))

    def _set_group_hold(self, hold: GroupHold) -> list[str]:
        """Replace what is held for a group; return the claims concerned."""
        before = self.group_holds.pop(hold.uid, hold)
        for claim in before.claims:
            self.held_claims.pop(claim.uid, None)
        if hold.claims:
            self.group_holds[hold.uid] = hold
            self.held_claims |= {claim.uid: claim.allocation for claim in hold.claims}
        return [claim.uid for claim in (*before.claims, *hold.claims)]

    def _set_node_hold(self, hold: NodeHold | None) -> list[str]:
        """Replace the held nodes; return the UIDs under which old and new ones count as full."""
        before = self.held_nodes
        self.node_hold = hold if hold is not None and hold.nodes else None
        nodes = () if self.node_hold is None else self.node_hold.nodes
        self.held_nodes = {held_node_uid(node): node for node in nodes}
        return list({**before, **self.held_nodes})

    def _end(self, known: Reservation, release: Release, now_unix_s: float) -> tuple[str, ...]:
        """End a reservation; return its pods."""
        if release.exclude_node:
            excluded = self.excluded.setdefault(known.claim_uid, {})
            excluded[release.exclude_node] = now_unix_s
        if release.why == "deleted":
            del self.claims[known.claim_uid]
            self.excluded.pop(known.claim_uid, None)
        else:
            stage = Stage.COMMITTED if release.why == "committed" else Stage.OVER
            self.claims[known.claim_uid] = msgspec.structs.replace(known, stage=stage)
        pods = (known.pod_uid, *self.sharers.get(known.claim_uid, ()))
        if not self._lives(known.claim_uid):
            self.sharers.pop(known.claim_uid, None)
        for uid in pods:
            pod = self.pods.get(uid)
            if pod is not None and not any(self._lives(claim.uid) for claim in pod.claims):
                del self.pods[uid]
        return pods

    def _lives(self, claim_uid: str) -> bool:
        reservation = self.claims.get(claim_uid)
        return reservation is not None and reservation.stage is not Stage.OVER

    def _checkpoint(self, record: Checkpoint) -> Changes:
        """Continue from a checkpoint once its last part is read. Every reader then knows the same,
        whether it begins here or has read all earlier records."""
        if not self.parts.is_complete:
            return NOTHING
        whole, self.parts, self.is_whole = self.parts, NO_PARTS, True
        self.checkpoint_unix_s = record.now_unix_s
        self.since_checkpoint = 0
        self.learned = whole.learned
        self.left = {one.node: one.node_revision for one in whole.left_nodes}
        self.waiting = {one.pod_uid: one for one in whole.waiting}
        self.excluded = {}
        for excluded in whole.excluded_nodes:
            nodes = self.excluded.setdefault(excluded.claim_uid, {})
            nodes[excluded.node] = excluded.since_unix_s
        claims, pods, held_claims = self.claims, self.pods, self.held_claims
        held_nodes = self._set_node_hold(whole.node_hold)
        self.group_holds, self.held_claims = {}, {}
        for hold in whole.holds:
            self._set_group_hold(hold)
        self.claims = _reservations(whole, claims)
        self.pods = {pod.pod_uid: pods.get(pod.pod_uid, pod) for pod in whole.in_flight}
        self.sharers = {}
        for pod in self.pods.values():
            for claim in pod.claims:
                found = self.claims.get(claim.uid)
                is_latest = found is not None and found.attempt == claim.attempt
                if found is not None and is_latest and found.pod_uid != pod.pod_uid:
                    self.sharers[claim.uid] = (*self.sharers.get(claim.uid, ()), pod.pod_uid)
        changed = (*_changed(claims, self.claims), *_changed(held_claims, self.held_claims))
        return Changes(tuple(dict.fromkeys(changed)), (*_changed(pods, self.pods), *held_nodes))


def _reservations(
    whole: CheckpointParts, known: Mapping[str, Reservation]
) -> dict[str, Reservation]:
    """The reservations of a checkpoint. Those that are known already are kept as they are."""
    decided = whole.decisions()
    found = {}
    for one in whole.reserved:
        before = known.get(one.uid)
        if before is None or (before.attempt, before.stage) != (one.attempt, one.stage):
            pod, claim = decided[one.uid, one.attempt]
            before = _reservation(one, pod, claim)
        found[one.uid] = before
    return found


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(uid for uid in {**before, **after} if before.get(uid) is not after.get(uid))


def _reservation(one: ReservedClaim, pod: PodDecision, claim: ClaimDecision) -> Reservation:
    return Reservation(
        one.uid,
        claim.namespace,
        claim.name,
        one.attempt,
        pod.pod_uid,
        claim.allocation,
        one.decided_unix_s,
        pod.node,
        Stage(one.stage),
    )


@dataclass(slots=True)
class SchedulingDomain:
    """The fold of the domain's log, the pending appends, and the queue of pods."""

    name: str
    epoch: int
    start: int = 1
    """Sequence of the record from which on a reader of the log knows everything."""
    confirmed: LogFold = field(default_factory=LogFold)
    """The log as it was read."""
    current: LogFold = field(default_factory=LogFold)
    """The log with the pending appends; decisions build on it."""
    appended: deque[tuple[int, AnyRecord]] = field(default_factory=deque)
    """Sequence and record of appends not read back yet."""
    serving_since: int | None = None
    """While serving: the log's last sequence when the lease was taken."""
    term: int = 0
    """How many times this replica began to serve the domain."""
    lost: bool = False
    """The log's stream is missing."""
    undecodable: str = ""
    """Why this replica must not decide in this epoch: a message of a newer release."""
    read: bool = False
    """Whether the log was folded to its end once, from its first record or from a whole
    checkpoint on."""
    unnamed: bool = False
    """The facts that named the epoch are lost, and the new facts have not named one yet. Claims
    of this log may be deleted without a fact."""
    renamed: int = 0
    """A lower epoch that the new facts name. It is followed as soon as this log is known to be
    lost."""
    place: int = 0
    """Its position among the replica's domains."""
    queue: SchedulingQueue = field(default_factory=SchedulingQueue)
    groups: PendingGroups = field(default_factory=PendingGroups)
    """PodGroups whose pods are decided together."""
    unsettled: dict[str, None] = field(default_factory=dict)
    """Claims with a reservation that has not ended."""
    asked: dict[str, int] = field(default_factory=dict)
    """Per claim, the number of the last void request that was sent."""
    ticked: bool = False
    """A tick was folded but not handled yet."""
    settle: bool = True
    """Whether all of ``unsettled`` must be checked."""
    to_settle: dict[str, None] = field(default_factory=dict)
    """Claims of ``unsettled`` that changed since they were checked."""
    ending: dict[str, None] = field(default_factory=dict)
    """Claims of ``unsettled`` whose reservation ends with the next tick."""

    unwritten: Learned | None = None
    """The workload model that is used but not in the log yet; the next decided record has it."""
    workload_model: WorkloadModel | None = None
    """While serving, if the policy learns: the model of the pods seen."""
    node_worths: NodeWorths = field(default_factory=NodeWorths)
    """Cache of what follows from ``learned``."""

    @property
    def learned(self) -> Learned | None:
        """The workload model of FragmentationAware; None before the first decision."""
        return self.unwritten or self.current.learned

    @property
    def serving(self) -> bool:
        """Whether this replica may append, once it is caught up."""
        return self.serving_since is not None

    def has_work(self, *, goes_on: bool) -> bool:
        """Whether a step may do something. ``goes_on``: paused searches may continue."""
        queue, groups = self.queue, self.groups
        return bool(
            self.ticked
            or self.settle
            or self.to_settle
            or queue.active
            or queue.must_scan
            or groups.touched
            or groups.active
            or (goes_on and queue.paused)
        )

    def forget_appended(self) -> list[AnyRecord]:
        """Return to the confirmed log; return the forgotten records."""
        forgotten = [record for _, record in self.appended]
        self.appended.clear()
        self.current = self.confirmed.copy()
        self.forget_learned()
        return forgotten

    def forget_learned(self) -> None:
        """Drop the workload model that is not in the log."""
        self.unwritten = self.workload_model = None


def counts(reservation: Reservation, claim: Claim | None, gone: bool) -> bool:
    """Whether a claim without ``status.allocation`` still uses what is reserved for it.

    A void of the attempt, or the claim's deletion, proves that it can never be committed.
    An allocation that was committed and cleared counts until the void, because a paused executor
    could still write it.
    """
    if gone or reservation.stage is Stage.OVER:
        return False
    return claim is None or claim.void < reservation.attempt


def merely_reserved(reservation: Reservation | None, claim: Claim | None) -> bool:
    """Whether the claim needs no action before the next tick."""
    return (
        reservation is not None
        and reservation.stage is Stage.RESERVED
        and claim is not None
        and claim.void < reservation.attempt
    )


def executed_unknown(claim: Claim, reservation: Reservation | None) -> bool:
    """Whether an execution has begun that is neither voided nor in this log: it is of an older
    epoch, or its record was trimmed. It could still be committed, so it is voided first."""
    known = reservation.attempt if reservation else 0
    return claim.allocation is None and claim.decision > max(claim.void, known)


def held_node_uid(node: str) -> str:
    """The UID of the assumed pod that makes a held node count as full."""
    return f"held-node/{node}"


def subjects(record: AnyRecord) -> Changes:
    """The claims and pods that a record is about."""
    match record:
        case Decided(pods=pods):
            claims = tuple(claim.uid for pod in pods for claim in pod.claims)
            return Changes(claims, tuple(pod.pod_uid for pod in pods))
        case Released(releases=releases, holds=holds):
            held = [claim.uid for hold in holds for claim in hold.claims]
            claims = (*(release.claim_uid for release in releases), *held)
            nodes = () if record.node_hold is None else record.node_hold.nodes
            return Changes(claims, tuple(map(held_node_uid, nodes)))
        case Waiting():
            return Changes(pods=tuple([one.pod_uid for one in record.by_pod()]))
        case _:
            return NOTHING
