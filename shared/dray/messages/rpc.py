"""Questions with an answer, over plain request and reply."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec

from dray.api.claims import AllocatedDevice
from dray.api.groups import GroupQueue
from dray.api.pods import Policy, Pool
from dray.messages.facts import TemplateObserved

LOOKUP_SUBJECT = "dray.rpc.lookup"
DERIVE_SUBJECT = "dray.rpc.derive"
DUMP_SUBJECT = "dray.rpc.dump"
SCORES_SUBJECT = "dray.rpc.scores"
READING_SUBJECT = "dray.rpc.reading"
INVENTORY_SUBJECT = "dray.rpc.inventory"


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """The webhook's request before it answers, answered from a live GET. It asks for a ``pool``,
    ``policy``, ``template`` or ``queue`` before it denies; for a ``namespace`` before it puts a
    PodGroup into a queue; for a ``group`` before it places a pod without GPUs that names no pool;
    for an ``overlap`` before it warns about a GPUPool, and for a ``use`` before it warns about a
    deletion. The claim-controller answers the last two from its caches."""

    SUBJECT: ClassVar[str] = LOOKUP_SUBJECT

    kind: Literal["pool", "policy", "template", "queue", "namespace", "group", "overlap", "use"]
    name: str
    """Empty, of kind ``pool``: the default pool, if there is exactly one."""
    namespace: str = ""
    selector: tuple[tuple[str, str], ...] | None = None
    """For ``overlap``: the pool's ``spec.nodeSelector``; None: nodes that are labelled with its
    name."""


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that a pool selects, or would, and that are assigned to other pools."""

    count: int
    nodes: tuple[tuple[str, str], ...] = ()
    """The first of them, each with its pool."""


class LookupReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The API server's object; all absent: no such object."""

    pool: Pool | None = None
    policy: Policy | None = None
    template: TemplateObserved | None = None
    queue: GroupQueue | None = None
    queue_name: str = ""
    """For ``namespace``: the queue that it names for its PodGroups."""
    group_resources: tuple[str, ...] = ()
    """For ``group``: the resources in ``minResources`` of a PodGroup of Volcano, without those of
    amount 0."""
    overlap: Overlap | None = None
    used_by: int | None = None
    """For ``use``: how many pods hold devices of the pool."""
    error: str = ""
    """Why the API server could not be asked."""


class Derive(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The webhook's request, before it admits a pod, that the pod's derived template be made."""

    SUBJECT: ClassVar[str] = DERIVE_SUBJECT

    namespace: str
    template: str
    """Its name; it ends with the hash of ``shape``."""
    shape: str
    """What the pod gets as annotation ``tensor-fusion.ai/shape``."""
    traceparent: str = ""


class DeriveReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a template of that name exists now."""

    error: str = ""
    """Why the template does not exist; empty if it does."""


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the replica that serves a domain; other replicas do not answer."""

    SUBJECT: ClassVar[str] = DUMP_SUBJECT

    domain: str
    after: str = ""
    """Only claims with a greater uid: an answer is a page, in the order of their uids."""


class Holding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An allocator's state of one claim: its last attempt in the log, and its devices in use."""

    uid: str
    namespace: str
    name: str
    attempt: int = 0
    """The latest of the log; 0: the log has none."""
    stage: str = ""
    """Its state: ``held``, ``committed`` or ``over``; empty without one."""
    decided_unix_s: float = 0.0
    decided: tuple[AllocatedDevice, ...] = ()
    """The allocation of that attempt."""
    used: tuple[AllocatedDevice, ...] = ()
    """The usage charged to devices now, from a log or a status."""


class DumpReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One page of the state, and the positions of its replica."""

    domain: str
    instance: str = ""
    epoch: int = 0
    facts_sequence: int = 0
    log_sequence: int = 0
    """The sequence of the last record that was read back."""
    holdings: tuple[Holding, ...] = ()
    more: bool = False
    """Whether there is a next page, after the last of these uids."""
    error: str = ""
    """Why the question could not be answered."""


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """The scores at the decision on a pod; only the replica that kept them answers."""

    SUBJECT: ClassVar[str] = SCORES_SUBJECT

    pod_uid: str


class ScoredNode(msgspec.Struct, frozen=True):
    """A node on which a pod fits."""

    node: str
    score: int
    """The lowest is best; a hash of the node's uid orders equal ones."""
    parts: dict[str, float]
    """What the score is made of: loads from 0 to 1, or ``loss``, the worth that the pool's other
    pods lose."""


class PodScores(msgspec.Struct, frozen=True, omit_defaults=True):
    """The nodes with the best scores for a pod."""

    policy: str
    """Which nodes come first, in words."""
    nodes: tuple[ScoredNode, ...]
    """The best first."""
    of_nodes: int
    """How many nodes the pool has."""
    first: str = ""
    """What comes before the score, in words; empty: nothing."""


class ScoresReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The scores by which a pod was decided, as the deciding replica kept them."""

    instance: str = ""
    """The replica."""
    node: str = ""
    """The node that was chosen."""
    decided_unix_s: float = 0.0
    scores: PodScores | None = None
    """At most as many nodes as 1 KiB holds."""
    error: str = ""
    """Why the question could not be answered."""


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request for a pull consumer of a stream: only the owner of the streams makes consumers."""

    SUBJECT: ClassVar[str] = f"{READING_SUBJECT}.<role>"

    stream: str
    subjects: tuple[str, ...] = ()
    """Filters; none: the whole stream."""
    start: int = 1
    """First sequence."""
    last_only: bool = False
    """Only the last message of each subject, wherever it is; ``start`` is ignored."""


class ReadingReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The consumer that was made, and the stream at that moment."""

    consumer: str = ""
    """Its random name, known only to the requester: clients that know it may pull from it."""
    created: str = ""
    """When the stream was made."""
    first_sequence: int = 0
    last_sequence: int = 0
    pending: int = 0
    """Messages that the consumer will deliver at once."""
    is_missing: bool = False
    """The stream does not exist."""
    error: str = ""
    """Why no consumer was made."""


class Inventory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node-agent's report of its node's devices, for the leader to publish as a fact."""

    SUBJECT: ClassVar[str] = f"{INVENTORY_SUBJECT}.<node>"

    node: str
    driver: str
    generation: int
    """The generation of the node's ResourceSlices, as published."""
    devices: int = 0
    """How many there are."""
    unhealthy: tuple[str, ...] = ()
    """Names of devices."""
    registered_unix_s: float = 0.0
    """When the kubelet registered the agent's plugin last: it can prepare pods now that it could
    not prepare before."""
    prepared: tuple[str, ...] = ()
    """UIDs of the claims that the agent has prepared in the last half minute."""


class InventoryReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the report is known as a fact now."""

    accepted: bool = False
    known_generation: int = 0
    """The highest one that was published for this node; a report must not be below it."""
    error: str = ""
    """Why the report was not accepted."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request type, its reply type, and the two services."""

    name: str
    asked: type[Lookup | Derive | Dump | Scores | Reading | Inventory]
    reply: type[LookupReply | DeriveReply | DumpReply | ScoresReply | ReadingReply | InventoryReply]
    asks: str
    answers: str


QUESTIONS = (
    Question("lookup", Lookup, LookupReply, "webhook", "claim-controller (any one instance)"),
    Question("derive", Derive, DeriveReply, "webhook", "claim-controller (any one instance)"),
    Question("dump", Dump, DumpReply, "dray doctor", "allocator (the one that serves the domain)"),
    Question("scores", Scores, ScoresReply, "dray explain", "allocator (the one that decided)"),
    Question(
        "reading",
        Reading,
        ReadingReply,
        "webhook, allocator, node-agent, dray",
        "claim-controller (any one instance)",
    ),
    Question("inventory", Inventory, InventoryReply, "node-agent", "claim-controller (the leader)"),
)
