"""The records of a domain's decision log, the only thing that reserves devices.

There is one stream per domain and epoch. Records are appended with the expected last sequence, so a
writer that has not folded every record can't append. The claim-controller executes the records.
Standbys, ``dray explain`` and replay read the log.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import msgspec

from dray.api import json_codec
from dray.api.claims import Allocation
from dray.api.pods import GroupKey, HostPort
from dray.messages.base import Kind, Message, token
from dray.reasons import Reason

WhyReleased = Literal["committed", "voided", "withdrawn", "deleted"]


class Record(Message, frozen=True, kw_only=True, tag_field="record"):
    """Fields of every record: its log, and the state of its writer."""

    KIND: ClassVar[Kind] = "decision"
    NAME: ClassVar[str] = "log"

    domain: str
    epoch: int
    writer: str
    """The writing instance."""
    facts_sequence: int
    """Sequence of the last fact applied before. Later writers of this log decide only after they
    have applied at least these facts."""
    now_unix_s: float
    """The time used for the decision."""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """The writer's settings that decisions depend on, if they are not the defaults."""

    def ids(self) -> tuple[str, ...]:
        return (self.domain, str(self.epoch))

    def key(self) -> str:
        """Unused: records are fenced by sequence, not deduplicated by id."""
        return f"{self.domain}.{self.epoch}.{self.writer}.{self.now_unix_s}"


class Opened(Record, frozen=True, kw_only=True, tag="opened"):
    """The first record, written by the claim-controller's leader."""


class ClaimDecision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The allocation of one claim."""

    uid: str
    namespace: str
    name: str
    attempt: int
    allocation: Allocation


class GroupDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The joint decision on pods of a PodGroup that are bound together or not at all."""

    id: str
    """Equal for all pods of one decision; different for other decisions."""
    group: GroupKey
    uid: str
    """The UID of the PodGroup."""
    size: int
    """The number of pods in the decision."""
    timeout_s: float
    """How long after the decision fewer pods than the group's minimum may run."""


class PodDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The node of a pod and the allocations of its claims. It is executed as a whole."""

    pod_uid: str
    namespace: str
    name: str
    node: str
    binder: Literal["dray", "kube-scheduler"]
    """``dray``: dray binds the pod itself. ``kube-scheduler``: dray removes the scheduling gate."""
    claims: tuple[ClaimDecision, ...]
    cpu_milli: int = 0
    memory_bytes: int = 0
    request_id: str = ""
    traceparent: str = ""
    considered_devices: int = 0
    took_us: int = 0
    """Duration of the decision, for people. Replay ignores it."""
    resources: dict[str, int] = msgspec.field(default_factory=dict)
    """Resources other than cpu and memory that the pod takes from its node."""
    ports: tuple[HostPort, ...] = ()
    group: GroupDecision | None = None
    """The joint decision to which it belongs; None: the pod is decided alone."""


class TypicalPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requirements of frequent pods, as FragmentationAware uses them."""

    cpu_milli: int
    cards: int
    milli: tuple[int, ...]
    """Thousandths of a device that such a pod takes, per class of devices; 0: it can't use the
    class."""
    count: int
    """Recent number of such pods in thousandths. Older pods count less."""
    gain: int
    """Value of each thousandth of a device that such pods can use, in millionths."""
    waste: int
    """Cost of each idle thousandth of a device that such pods can't use, in millionths."""


class Learned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The workload model of FragmentationAware. It has only whole numbers, so that all readers
    compute equal scores."""

    version: int
    classes: tuple[str, ...]
    """Classes of devices: driver, model and capacities."""
    pods: tuple[TypicalPod, ...]


class Decided(Record, frozen=True, kw_only=True, tag="decided"):
    """Devices were chosen. One record may have any number of pods."""

    policy_version: int
    pods: tuple[PodDecision, ...]
    learned: Learned | None = None
    """The workload model for these and later decisions, if it changed."""
    learned_version: int = 0
    """Version of the last workload model; 0: none."""


class DecidedGroup(Decided, frozen=True, kw_only=True, tag="decided-group"):
    """Pods of a PodGroup that are bound together. The parts of a decision are consecutive records.
    A decision with a missing part is ignored. Releases that do not know this record stop reading
    the log, because they would bind the pods one by one."""

    part: int = 1
    parts: int = 1


class WaitingPeer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Another pod that waits for the reasons of a record."""

    pod_uid: str
    namespace: str
    name: str
    request_id: str = ""
    traceparent: str = ""


class Waiting(Record, frozen=True, kw_only=True, tag="waiting"):
    """The reasons why a pod waits have changed. Several pods with equal reasons share a record."""

    pod_uid: str
    namespace: str
    name: str
    reasons: tuple[Reason, ...]
    request_id: str = ""
    traceparent: str = ""
    peers: tuple[WaitingPeer, ...] = ()
    """More pods with these reasons. Releases before 0.2 read only the first pod."""

    def by_pod(self) -> "Iterator[Waiting]":
        """A record for each pod."""
        alone = msgspec.structs.replace(self, peers=()) if self.peers else self
        yield alone
        for one in self.peers:
            yield msgspec.structs.replace(alone, **msgspec.structs.asdict(one))


class Release(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reservation that ended."""

    claim_uid: str
    attempt: int
    why: WhyReleased
    """If it is a value of a later release, it is unknown whether it frees the devices."""
    exclude_node: str = ""
    """A node that is not tried again soon for this claim."""


class HeldClaim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A claim of a pod that its group has lost, and the claim's former devices."""

    uid: str
    allocation: Allocation


class GroupHold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Devices that are held for a PodGroup that has lost pods. Only its own pods, and pods with a
    higher priority, get them."""

    group: GroupKey
    uid: str
    """The UID of the PodGroup."""
    priority: int
    since_unix_s: float
    until_unix_s: float
    claims: tuple[HeldClaim, ...] = ()
    """Empty: the hold has ended."""


class NodeHold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Nodes that are held for a pod or PodGroup that has waited long. Only this pod or the group's
    pods, and pods with a higher priority, are placed there."""

    uid: str
    """The UID of the pod or PodGroup."""
    namespace: str
    name: str
    group: GroupKey | None = None
    """None: the hold is for a pod without a group."""
    priority: int
    since_unix_s: float
    until_unix_s: float
    nodes: tuple[str, ...] = ()
    """Empty: the hold has ended."""


class Released(Record, frozen=True, kw_only=True, tag="released"):
    """Reservations that ended. Committed allocations continue in ``ResourceClaim.status``."""

    releases: tuple[Release, ...]
    holds: tuple[GroupHold, ...] = ()
    """The devices held for these groups from now on. Releases that do not know this field give the
    devices to any pod."""
    node_hold: NodeHold | None = None
    """The nodes that the pool holds from now on; None: no change. Releases that do not know this
    field place any pod there."""


class NodeLeft(Record, frozen=True, kw_only=True, tag="node-left"):
    """The domain has nothing in flight on a node that is no longer in it."""

    node: str
    node_revision: int
    """Revision of the node fact that took it away."""


class ReservedClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The latest attempt of a claim. Its allocation is in a decision of the same checkpoint."""

    uid: str
    attempt: int
    decided_unix_s: float
    stage: Literal["held", "committed", "over"] = "held"
    """``over``: voided, but the claim does not show it yet."""


class WaitingPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The last reasons of a waiting pod."""

    pod_uid: str
    namespace: str
    name: str
    reasons: int
    """Index into ``Checkpoint.reasons`` of the same part."""
    recorded_unix_s: float
    request_id: str = ""
    traceparent: str = ""


class ExcludedNode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node that is not tried soon for a claim."""

    claim_uid: str
    node: str
    since_unix_s: float


class LeftNode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node that left the domain and is in no other domain yet."""

    node: str
    node_revision: int
    """Revision of the node fact that took it away."""


class Checkpoint(Record, frozen=True, kw_only=True, tag="checkpoint"):
    """The state after all earlier records. Readers may begin here, and earlier records can be
    trimmed. The parts of a checkpoint are consecutive records. A checkpoint with a missing part is
    ignored."""

    part: int = 0
    """Counted from 1. 0: written by a release whose checkpoints are not complete, so no reader may
    begin there."""
    parts: int = 0
    in_flight: tuple[PodDecision, ...] = ()
    """The latest decision of each pod of which a claim is reserved or committed."""
    former: tuple[PodDecision, ...] = ()
    """Earlier decisions with the latest attempt of a claim. They contain only these claims."""
    reserved: tuple[ReservedClaim, ...] = ()
    reasons: tuple[tuple[Reason, ...], ...] = ()
    """The different lists of reasons to wait. Many pods share one."""
    waiting_pods: tuple[WaitingPod, ...] = ()
    excluded_nodes: tuple[ExcludedNode, ...] = ()
    left_nodes: tuple[LeftNode, ...] = ()
    holds: tuple[GroupHold, ...] = ()
    node_holds: tuple[NodeHold, ...] = ()
    """At most one."""
    learned: Learned | None = None
    """The workload model of earlier decisions."""
    waiting: tuple[str, ...] = ()
    """Only in records of earlier releases."""
    excluded: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Only in records of earlier releases."""


class CheckpointPart(Checkpoint, frozen=True, kw_only=True, tag="checkpoint-part"):
    """A later part of a checkpoint. Releases that do not know this record stop reading the log,
    because they would take the first part for the whole checkpoint."""


AnyRecord = (
    Opened | Decided | DecidedGroup | Waiting | Released | NodeLeft | Checkpoint | CheckpointPart
)
_RECORD: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)
RECORDS: tuple[type[Record], ...] = (
    Opened,
    Decided,
    DecidedGroup,
    Waiting,
    Released,
    NodeLeft,
    Checkpoint,
    CheckpointPart,
)

LOG_PREFIX = "DRAY_DECISIONS_"
"""Prefix of the names of all decision logs' streams."""


def log_stream(domain: str, epoch: int) -> str:
    """Stream of a domain's decision log. Its name contains the epoch, so that a writer of a lost
    log finds no stream."""
    return f"{LOG_PREFIX}{token(domain)}_{epoch}"


def domain_lease(domain: str) -> str:
    """Key of the lease held by the replica that serves a domain."""
    return f"domain.{token(domain)}"


def log_subject(domain: str, epoch: int) -> str:
    """Subject of a domain's decision log."""
    return f"dray.decision.{token(domain)}.{epoch}"


def encode_record(record: AnyRecord) -> bytes:
    """The record's payload."""
    return msgspec.json.encode(record)


def decode_record(payload: bytes) -> AnyRecord:
    """The record in ``payload``.

    Raises:
        msgspec.MsgspecError: the payload is not a known record.
    """
    return json_codec.decode(payload, _RECORD, opaque=json_codec.opaque_parts(payload))
