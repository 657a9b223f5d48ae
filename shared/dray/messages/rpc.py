"""Questions and answers, by plain request and reply."""

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
    """A question of the webhook before it answers the API server. It asks for a ``pool``,
    ``policy``, ``template`` or ``queue`` before it denies, for a ``namespace`` before it puts a
    PodGroup into a queue, for a ``group`` before it places a pod without GPUs that names no pool,
    for an ``overlap`` before it warns about a GPUPool, and for a ``use`` before it warns about a
    deletion. The claim-controller answers the last two from its caches, and the others from a live
    GET."""

    SUBJECT: ClassVar[str] = LOOKUP_SUBJECT

    kind: Literal["pool", "policy", "template", "queue", "namespace", "group", "overlap", "use"]
    name: str
    """The name. For kind ``pool``, empty means the default pool, if there is exactly one."""
    namespace: str = ""
    selector: tuple[tuple[str, str], ...] | None = None
    """For ``overlap``: the pool's ``spec.nodeSelector``; None: nodes that are labelled with its
    name."""


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that a pool selects, or would select, but that are assigned to other pools."""

    count: int
    nodes: tuple[tuple[str, str], ...] = ()
    """The first of these nodes, each with its pool."""


class LookupReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The API server's object. If all fields are absent, there is no such object."""

    pool: Pool | None = None
    policy: Policy | None = None
    template: TemplateObserved | None = None
    queue: GroupQueue | None = None
    queue_name: str = ""
    """For ``namespace``: the queue that the namespace names for its PodGroups."""
    group_resources: tuple[str, ...] = ()
    """For ``group``: the resources in ``minResources`` of a Volcano PodGroup, except those with the
    amount 0."""
    overlap: Overlap | None = None
    used_by: int | None = None
    """For ``use``: how many pods hold devices of the pool."""
    error: str = ""
    """Why the API server could not be asked."""


class Derive(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The webhook's request to create a pod's derived template, before it admits the pod."""

    SUBJECT: ClassVar[str] = DERIVE_SUBJECT

    namespace: str
    template: str
    """Its name; it ends with the hash of ``shape``."""
    shape: str
    """The value of the pod's annotation ``tensor-fusion.ai/shape``."""
    traceparent: str = ""


class DeriveReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a template with this name exists now."""

    error: str = ""
    """Why the template does not exist; empty if it does."""


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for the state of the replica that serves a domain. Other replicas do not answer."""

    SUBJECT: ClassVar[str] = DUMP_SUBJECT

    domain: str
    after: str = ""
    """Only claims with a greater uid. An answer is one page, ordered by uid."""


class Holding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An allocator's state of one claim: its last attempt in the log, and the devices in use."""

    uid: str
    namespace: str
    name: str
    attempt: int = 0
    """The latest attempt in the log; 0: the log has none."""
    stage: str = ""
    """The state of the attempt: ``held``, ``committed`` or ``over``; empty without an attempt."""
    decided_unix_s: float = 0.0
    decided: tuple[AllocatedDevice, ...] = ()
    """The allocation of this attempt."""
    used: tuple[AllocatedDevice, ...] = ()
    """The usage that is now charged to devices, from a log or a status."""


class DumpReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One page of the state, and the positions of the replica."""

    domain: str
    instance: str = ""
    epoch: int = 0
    facts_sequence: int = 0
    log_sequence: int = 0
    """The sequence of the last record that the replica read back."""
    holdings: tuple[Holding, ...] = ()
    more: bool = False
    """Whether there is another page, after the last uid of this page."""
    error: str = ""
    """Why the question could not be answered."""


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for the scores at the decision on a pod. Only the replica that kept them answers."""

    SUBJECT: ClassVar[str] = SCORES_SUBJECT

    pod_uid: str


class ScoredNode(msgspec.Struct, frozen=True):
    """A node on which a pod fits."""

    node: str
    score: int
    """The lowest score is best. A hash of the node's uid orders equal scores."""
    parts: dict[str, float]
    """The parts of the score: loads from 0 to 1, or ``loss``, the value that the pool's other pods
    lose."""


class PodScores(msgspec.Struct, frozen=True, omit_defaults=True):
    """The nodes with the best scores for a pod."""

    policy: str
    """In words, which nodes come first."""
    nodes: tuple[ScoredNode, ...]
    """The best first."""
    of_nodes: int
    """The number of nodes in the pool."""
    first: str = ""
    """In words, what is compared before the score; empty: nothing."""


class ScoresReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The scores used for the decision on a pod, as the deciding replica kept them."""

    instance: str = ""
    """The replica."""
    node: str = ""
    """The node that was chosen."""
    decided_unix_s: float = 0.0
    scores: PodScores | None = None
    """At most as many nodes as fit into 1 KiB."""
    error: str = ""
    """Why the question could not be answered."""


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request for a pull consumer of a stream. Only the streams' owner creates consumers."""

    SUBJECT: ClassVar[str] = f"{READING_SUBJECT}.<role>"

    stream: str
    subjects: tuple[str, ...] = ()
    """Filters; empty: the whole stream."""
    start: int = 1
    """First sequence."""
    last_only: bool = False
    """Only the last message of each subject, regardless of ``start``."""


class ReadingReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The consumer that was created, and the stream's state at that time."""

    consumer: str = ""
    """The consumer's random name. Only the requester knows it; a client that knows it may pull."""
    created: str = ""
    """When the stream was created."""
    first_sequence: int = 0
    last_sequence: int = 0
    pending: int = 0
    """Number of messages that the consumer can deliver at once."""
    is_missing: bool = False
    """The stream does not exist."""
    error: str = ""
    """Why no consumer was created."""


class Inventory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node-agent's report on its node's devices. The leader publishes it as a fact."""

    SUBJECT: ClassVar[str] = f"{INVENTORY_SUBJECT}.<node>"

    node: str
    driver: str
    generation: int
    """The generation of the node's ResourceSlices, as published."""
    devices: int = 0
    """Number of devices."""
    unhealthy: tuple[str, ...] = ()
    """Names of the unhealthy devices."""
    registered_unix_s: float = 0.0
    """When the kubelet last registered the agent's plugin. Since then the agent can prepare pods
    that it could not prepare before."""
    prepared: tuple[str, ...] = ()
    """UIDs of the claims that the agent has prepared in the last half minute."""


class InventoryReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the report is now known as a fact."""

    accepted: bool = False
    known_generation: int = 0
    """The highest generation that was published for this node. A report must not be below it."""
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
