"""The records of a domain's decision log, the only thing that reserves devices.

The log is one stream per domain and epoch, appended with the expected last sequence: who has
not folded every record can't add one. The claim-controller consumes it as its commands;
standbys, ``dray explain`` and replay read it.
"""

from typing import Any, ClassVar, Literal

import msgspec

from dray.domain import json_codec
from dray.domain.claims import Allocation
from dray.domain.pods import HostPort
from dray.messages.base import Kind, Message, token
from dray.reasons import Reason

WhyReleased = Literal["committed", "voided", "withdrawn", "deleted"]


class Record(Message, frozen=True, kw_only=True, tag_field="record"):
    """What every record says: where it belongs and what its writer had seen."""

    KIND: ClassVar[Kind] = "decision"
    NAME: ClassVar[str] = "log"

    domain: str
    epoch: int
    writer: str
    """Instance that wrote it."""
    facts_sequence: int
    """Last fact applied before; nobody decides on this log with fewer."""
    now_unix_s: float
    """The time the decision was given."""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """Those of its writer's settings that decisions depend on and that are not the defaults."""

    def ids(self) -> tuple[str, ...]:
        return (self.domain, str(self.epoch))

    def key(self) -> str:
        """Unused: records are fenced by sequence, not deduplicated by id."""
        return f"{self.domain}.{self.epoch}.{self.writer}.{self.now_unix_s}"


class Opened(Record, frozen=True, kw_only=True, tag="opened"):
    """The first record, written by the claim-controller's leader."""


class ClaimDecision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one claim gets."""

    uid: str
    namespace: str
    name: str
    attempt: int
    allocation: Allocation


class PodDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where a pod goes and what its claims get; executed as a whole."""

    pod_uid: str
    namespace: str
    name: str
    node: str
    binder: Literal["dray", "kube-scheduler"]
    """``dray`` binds itself; for ``kube-scheduler`` the gate is lifted."""
    claims: tuple[ClaimDecision, ...]
    cpu_milli: int = 0
    memory_bytes: int = 0
    request_id: str = ""
    traceparent: str = ""
    considered_devices: int = 0
    took_us: int = 0
    """Time the decision took, for people; replay ignores it."""
    resources: dict[str, int] = msgspec.field(default_factory=dict)
    """What the pod takes of its node, other than cpu and memory."""
    ports: tuple[HostPort, ...] = ()


class TypicalPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What pods that are often asked for need, as far as FragmentationAware looks at it."""

    cpu_milli: int
    cards: int
    milli: tuple[int, ...]
    """Per class of cards, thousandths of one that it takes of each card; 0: it can't use them."""
    count: int
    """How many there were lately, in thousandths: older ones count for less."""
    gain: int
    """Worth of a thousandth of a card that such pods can have, in millionths."""
    waste: int
    """What an idle thousandth of a card that they can't use costs, in millionths."""


class Learned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What FragmentationAware learned of the pods seen: whole numbers, so that all who read it
    score alike."""

    version: int
    classes: tuple[str, ...]
    """Classes of cards: driver, model and capacities."""
    pods: tuple[TypicalPod, ...]


class Decided(Record, frozen=True, kw_only=True, tag="decided"):
    """Devices were chosen: one record however many pods it touches."""

    policy_version: int
    pods: tuple[PodDecision, ...]
    learned: Learned | None = None
    """What these decisions and those after them are taken by, where it is not as before."""
    learned_version: int = 0
    """Of what was learned last; 0: nothing."""


class Waiting(Record, frozen=True, kw_only=True, tag="waiting"):
    """A pod's reason to wait changed."""

    pod_uid: str
    namespace: str
    name: str
    reasons: tuple[Reason, ...]
    request_id: str = ""
    traceparent: str = ""


class Release(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reservation that ended."""

    claim_uid: str
    attempt: int
    why: WhyReleased
    """Of another value of a later release nobody knows whether it frees the devices."""
    exclude_node: str = ""
    """Node not to be tried again soon for this claim."""


class Released(Record, frozen=True, kw_only=True, tag="released"):
    """Reservations that ended: committed ones live on in ``ResourceClaim.status``."""

    releases: tuple[Release, ...]


class NodeLeft(Record, frozen=True, kw_only=True, tag="node-left"):
    """The domain has nothing in flight on a node that is no longer in it."""

    node: str
    node_revision: int
    """Revision of the node fact that took it away."""


class Checkpoint(Record, frozen=True, kw_only=True, tag="checkpoint"):
    """All reservations in flight, so that the log can be trimmed below this record."""

    in_flight: tuple[PodDecision, ...] = ()
    waiting: tuple[str, ...] = ()
    excluded: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Per claim uid, nodes not to be tried soon."""
    learned: Learned | None = None
    """What the decisions before were taken by."""


AnyRecord = Opened | Decided | Waiting | Released | NodeLeft | Checkpoint
_RECORD: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)
RECORDS: tuple[type[Record], ...] = (Opened, Decided, Waiting, Released, NodeLeft, Checkpoint)


def log_stream(domain: str, epoch: int) -> str:
    """Stream of a domain's decision log; the epoch is in the name, so that a writer of a
    lost log finds no stream."""
    return f"DRAY_DECISIONS_{token(domain)}_{epoch}"


def log_subject(domain: str, epoch: int) -> str:
    """Subject of a domain's decision log."""
    return f"dray.decision.{token(domain)}.{epoch}"


def encode_record(record: AnyRecord) -> bytes:
    """The record's payload."""
    return msgspec.json.encode(record)


def decode_record(payload: bytes) -> AnyRecord:
    """The record in ``payload``.

    Raises:
        msgspec.MsgspecError: the payload is no known record.
    """
    return json_codec.decode(payload, _RECORD, opaque=json_codec.opaque_parts(payload))
