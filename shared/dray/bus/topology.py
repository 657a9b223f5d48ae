"""The streams, and what each role may publish, subscribe to and read. Data.

``tools/generate/nats_configuration.py`` makes nats-server's accounts from it, and
``dray.bus.readings`` checks requests for consumers against it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dray.bus.ports import StreamSpec
from dray.messages.base import Message, subject_prefix, token
from dray.messages.commands import VoidClaim
from dray.messages.decisions import log_stream, log_subject
from dray.messages.events import ClaimPrepared, ExecutionStep, PodRequested
from dray.messages.facts import (
    FACTS,
    ClusterObserved,
    DeviceClassObserved,
    InventoryObserved,
    NodeObserved,
    PolicyObserved,
    PoolObserved,
    PriorityClassObserved,
    QueueObserved,
    Synced,
    TemplateObserved,
)
from dray.messages.inputs import AgentNoted, ControllerNoted, Reviewed
from dray.messages.rpc import (
    DERIVE_SUBJECT,
    DUMP_SUBJECT,
    INVENTORY_SUBJECT,
    LOOKUP_SUBJECT,
    READING_SUBJECT,
    SCORES_SUBJECT,
)
from dray.messages.usage import GpusUsed

FACTS_STREAM = "DRAY_FACTS"
EVENTS_STREAM = "DRAY_EVENTS"
COMMANDS_STREAM = "DRAY_COMMANDS"
INPUTS_STREAM = "DRAY_INPUTS"
DEAD_STREAM = "DRAY_DEAD"
USAGE_STREAM = "DRAY_USAGE"
LEASES_STREAM = "DRAY_LEASES"
LEASE_PREFIX = "dray.lease."
"""Subjects of leases: one per key, used only inside the adapter."""
_DAY_S = 86_400.0
HOUR_S = 3_600.0
MIB = 2**20

STREAMS: tuple[StreamSpec, ...] = (
    StreamSpec(
        FACTS_STREAM,
        ("dray.state.>",),
        last_per_subject=True,
        message_ttl=True,
        purpose="the cluster as observed: last value of every object, folded in order",
    ),
    StreamSpec(
        EVENTS_STREAM,
        ("dray.evt.>",),
        max_age_s=_DAY_S,
        max_bytes=256 * MIB,
        purpose="what happened to pods, for timelines; no state depends on it",
    ),
    StreamSpec(
        COMMANDS_STREAM,
        ("dray.cmd.>",),
        max_age_s=_DAY_S,
        max_bytes=64 * MIB,
        purpose="requests to one service, which may refuse them",
    ),
    StreamSpec(
        INPUTS_STREAM,
        ("dray.input.>",),
        max_age_s=HOUR_S,
        max_bytes=256 * MIB,
        purpose="what services consumed while their recording is on, for `dray record`",
    ),
    StreamSpec(
        USAGE_STREAM,
        ("dray.usage.>",),
        last_per_subject=True,
        max_age_s=120.0,
        purpose="how GPUs are used now, for `dray top` and `dray gpus`",
    ),
    StreamSpec(
        DEAD_STREAM,
        ("dray.dead.>",),
        max_age_s=7 * _DAY_S,
        max_bytes=64 * MIB,
        purpose="undeliverable messages",
    ),
    StreamSpec(
        LEASES_STREAM,
        (f"{LEASE_PREFIX}>",),
        last_per_subject=True,
        message_ttl=True,
        purpose="which replica serves which domain; advisory, expires by message time-to-live",
    ),
)


def limited(limits: Mapping[str, int]) -> tuple[StreamSpec, ...]:
    """The streams. ``limits``: other limits in bytes for some, by name. Facts, leases and decision
    logs have no limit, because none of their messages may be dropped."""
    return tuple(replace(spec, max_bytes=limits.get(spec.name, spec.max_bytes)) for spec in STREAMS)


def log_spec(domain: str, epoch: int) -> StreamSpec:
    """The stream of a domain's decision log. Only the claim-controller's leader creates it."""
    return StreamSpec(
        log_stream(domain, epoch),
        (log_subject(domain, epoch),),
        duplicate_window_s=1.0,
        purpose=f"decisions of {domain}, epoch {epoch}",
    )


WHOLE = (">",)
"""The filter for all messages of a stream."""
DECISION_LOGS = "DRAY_DECISIONS_*"
NODE = "<node>"
"""Placeholder for the node's name in the rights of the role that has a user per node."""

API_OF_OWNER = "$JS.API."
API_OF_OTHERS = "dray.js."
"""Prefix under which the other accounts import JetStream's API. Under the server's own prefix a
request would be answered twice: by the owner's account, and by an account without JetStream."""
OWNER_ACCOUNT = "DRAY"
NODE_INBOX = "_INBOX"
"""Precedes the node's name in the inboxes of its user. Nodes share an account, but no inbox."""

WEBHOOK = "webhook"
CLAIM_CONTROLLER = "claim-controller"
ALLOCATOR = "allocator"
NODE_AGENT = "node-agent"
READER = "reader"
RECORDER = "recorder"


def stream_of(subject: str) -> str | None:
    """The stream that stores a subject, or None."""
    kind, *rest = subject.removeprefix("dray.").split(".")
    if kind == "decision" and len(rest) == 2:
        return DECISION_LOGS.replace("*", "_".join(rest))
    pattern = f"dray.{kind}.>"
    return next((spec.name for spec in STREAMS if pattern in spec.subjects), None)


@dataclass(frozen=True, slots=True)
class Readable:
    """Messages that a role may read through a consumer."""

    stream: str
    """A stream's name, or ``DECISION_LOGS``."""
    subjects: tuple[str, ...] = WHOLE
    """One of them has to cover each filter of a reading."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one role may do on the bus, apart from its inbox.

    Every role except the owner of the streams has an account of its own, which imports only these
    rights.
    """

    role: str
    publish: tuple[str, ...]
    answers: tuple[str, ...] = ()
    """Subjects of the requests that it answers."""
    reads: tuple[Readable, ...] = ()
    inspects: tuple[str, ...] = ()
    """Streams whose state it may request; ``*`` for all."""
    owns_streams: bool = False

    @property
    def has_user_per_node(self) -> bool:
        """Whether the authentication callout makes its users, one for each node."""
        return any(NODE in subject for subject in self.publish)

    def for_node(self, node: str) -> "Access":
        """The rights of one node's user; with ``*``, the rights of the role's account."""
        name = node if node == "*" else token(node)
        return Access(
            self.role,
            tuple(subject.replace(NODE, name) for subject in self.publish),
            self.answers,
            tuple(
                Readable(one.stream, tuple(each.replace(NODE, name) for each in one.subjects))
                for one in self.reads
            ),
            self.inspects,
        )


def account_of(role: str) -> str:
    """The NATS account of a role's users."""
    return OWNER_ACCOUNT if role == CLAIM_CONTROLLER else role.upper().replace("-", "_")


def _subjects(*messages: type[Message]) -> tuple[str, ...]:
    return tuple(f"{subject_prefix(message)}.>" for message in messages)


def _all_of(*messages: type[Message]) -> tuple[str, ...]:
    return tuple(
        subject
        for message in messages
        for subject in (subject_prefix(message), f"{subject_prefix(message)}.>")
    )


def reading_subject(role: str, node: str = "") -> str:
    """The subject of a role's requests for consumers. Each role's account imports only its own."""
    return ".".join((READING_SUBJECT, role, *([token(node)] if node else [])))


_FACTS_WHOLE = Readable(FACTS_STREAM)
_LOGS = Readable(DECISION_LOGS)
_FOR_PEOPLE = (
    *(_FACTS_WHOLE, _LOGS, Readable(EVENTS_STREAM), Readable(USAGE_STREAM), Readable(DEAD_STREAM)),
)

ACCESS: tuple[Access, ...] = (
    Access(
        CLAIM_CONTROLLER,
        (
            *_all_of(*FACTS),
            *_subjects(ExecutionStep, ControllerNoted),
            "dray.decision.>",
            "dray.dead.>",
        ),
        answers=(LOOKUP_SUBJECT, DERIVE_SUBJECT, f"{READING_SUBJECT}.>", f"{INVENTORY_SUBJECT}.*"),
        owns_streams=True,
    ),
    Access(
        WEBHOOK,
        (
            *_subjects(PodRequested, Reviewed),
            LOOKUP_SUBJECT,
            DERIVE_SUBJECT,
            reading_subject(WEBHOOK),
        ),
        reads=(
            Readable(
                FACTS_STREAM,
                _all_of(
                    PoolObserved,
                    PolicyObserved,
                    TemplateObserved,
                    QueueObserved,
                    PriorityClassObserved,
                    DeviceClassObserved,
                    ClusterObserved,
                    Synced,
                ),
            ),
        ),
        inspects=(FACTS_STREAM,),
    ),
    Access(
        ALLOCATOR,
        (
            "dray.decision.>",
            *_subjects(VoidClaim),
            f"{LEASE_PREFIX}>",
            reading_subject(ALLOCATOR),
        ),
        answers=(DUMP_SUBJECT, SCORES_SUBJECT),
        reads=(_FACTS_WHOLE, _LOGS),
        inspects=("*",),
    ),
    Access(
        NODE_AGENT,
        (
            f"{subject_prefix(ClaimPrepared)}.{NODE}.*",
            f"{subject_prefix(AgentNoted)}.{NODE}",
            f"{subject_prefix(GpusUsed)}.{NODE}",
            f"{INVENTORY_SUBJECT}.{NODE}",
            f"{reading_subject(NODE_AGENT)}.{NODE}",
        ),
        reads=(
            Readable(
                FACTS_STREAM,
                (
                    f"{subject_prefix(NodeObserved)}.{NODE}",
                    f"{subject_prefix(InventoryObserved)}.{NODE}",
                    subject_prefix(ClusterObserved),
                ),
            ),
        ),
    ),
    Access(
        READER,
        (DUMP_SUBJECT, SCORES_SUBJECT, reading_subject(READER)),
        reads=_FOR_PEOPLE,
        inspects=("*",),
    ),
    Access(
        RECORDER,
        (reading_subject(RECORDER),),
        reads=(*_FOR_PEOPLE, Readable(INPUTS_STREAM)),
        inspects=("*",),
    ),
)


def api_rights(access: Access) -> tuple[str, ...]:
    """Requests to JetStream's API that a role may send, without the prefix: pulls from consumers
    whose names it knows, states of streams, and leases. They create and change nothing, and reveal
    no consumer's name."""
    streams = dict.fromkeys("*" if "*" in one.stream else one.stream for one in access.reads)
    pulled = ("*",) if "*" in streams else tuple(streams)
    leases = (LEASES_STREAM,) if f"{LEASE_PREFIX}>" in access.publish else ()
    return (
        *(f"CONSUMER.MSG.NEXT.{stream}.*" for stream in pulled),
        *(f"STREAM.INFO.{stream}" for stream in access.inspects),
        *(f"STREAM.MSG.GET.{stream}" for stream in leases),
    )


def access_of(role: str) -> Access:
    """The rights of a role. Raises KeyError."""
    return {access.role: access for access in ACCESS}[role]
