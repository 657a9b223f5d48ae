"""The bounds of searches: some take seconds, for tests; ``make explore`` searches all.

All have two replicas (one if only executors matter), any number of executors, two nodes with one
device each (one node if pods compete) and at most three attempts of a claim. A pod with two claims,
which are decided and rolled back together, is called a gang of claims; a PodGroup has several pods.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class PodKind:
    """A pod that dray binds, and the virtual tflops that each of its claims requests of a device
    with 312. All claims of a pod are decided and executed together."""

    name: str
    claims: tuple[int, ...]
    late: bool = False
    """Created at any time instead of at the start."""
    is_member: bool = False
    """Whether it is in the PodGroup."""


class PublicationMode(Enum):
    """The order in which facts are published, at any delay."""

    IN_ORDER = auto()
    """In the order of the changes."""
    BY_KIND = auto()
    """Kinds may overtake each other, as their watches do."""
    BY_OBJECT = auto()
    """Objects of one kind may overtake each other, too."""


class RefusedWrites(Enum):
    """The writes of a claim that the API server refuses."""

    GROWTH = auto()
    """Writes that make it larger: its annotations are full."""
    OBJECT = auto()
    """All except those of its status."""
    EVERYTHING = auto()


@dataclass(frozen=True, slots=True)
class Bound:
    """The initial pods, and how many times each fault may occur.

    Late, repeated and lost messages, stopped and lagging processes are not limited: a search visits
    all of them.
    """

    name: str
    pods: tuple[PodKind, ...]
    nodes: tuple[str, ...] = ("n0", "n1")
    """Each with one device."""
    group_minimum: int = 0
    """``minMember`` of the PodGroup; 0: there is none."""
    pods_in_parts: bool = False
    """Whether each pod of a decision on the group has its own record."""
    interruptions: int = 1
    """Decisions in parts that another record interrupts; more are not searched. While two replicas
    serve, each could interrupt the other for ever."""
    replicas: int = 2
    crashes: int = 0
    """Restarts of replicas, which read the bus again."""
    lost_answers: int = 0
    """Appends that were stored but whose writer gets no answer."""
    checkpoints: bool = False
    """Whether replicas write a checkpoint when 31 s have passed and the log has grown."""
    early_ticks: int = 0
    """Times that 31 s pass before all work is done, so that every timeout expires."""
    deleted_pods: int = 0
    lost_nodes: int = 0
    refusals: int = 0
    """Times that the API server starts to refuse a claim's writes."""
    refused_writes: RefusedWrites = RefusedWrites.OBJECT
    permits: int = 0
    """Times that it stops refusing them, at any time or never."""
    lagging_voids: int = 0
    """Times that a replica that lags behind the log voids claims."""
    attempts: int = 3
    """Attempts of a claim; more are not searched."""
    ahead: int = 1
    """Pending appends with which a replica still decides."""
    publication: PublicationMode = PublicationMode.IN_ORDER
    late_executors: bool = True
    """Whether any number of executors acts, each with a cache of any age; else there is one, which
    sees its own writes at once."""
    replaced_leaders: bool = False
    """Whether a replaced leader that has not noticed it may read the log again while its watches
    lag: it then knows commits from the log that its cache lacks."""
    closing_ticks: int = 4
    """Times that 31 s pass after all work is done; problems after that are permanent."""


HALF, WHOLE = 156, 312
_P = PodKind("P", (HALF,))
_Q_LATER = PodKind("Q", (WHOLE,), late=True)
_GANG = PodKind("P", (HALF, HALF))

CRASH = Bound("a replica dies", (_P, _Q_LATER), crashes=1)
GANG = Bound("two claims of one pod", (_GANG, _Q_LATER))
ANSWERS = Bound("an answer is lost, a replica dies", (_P, _Q_LATER), crashes=1, lost_answers=1)
TIME = Bound("31 s pass at any time", (_P, PodKind("Q", (WHOLE,))), ("n0",), early_ticks=1)
LAGGING_VOIDS = Bound(
    "a replica behind the log has claims voided",
    (_P, PodKind("Q", (WHOLE,))),
    ("n0",),
    lagging_voids=1,
    publication=PublicationMode.BY_KIND,
)
NODE = Bound("a node leaves the pool", (_P, _Q_LATER), lost_nodes=1, ahead=0)
POD = Bound("a pod is deleted", (_P, _Q_LATER), ("n0",), deleted_pods=1)
GANG_CRASH = Bound(
    "two claims of one pod, an answer is lost, a replica dies",
    (_GANG, PodKind("Q", (WHOLE,))),
    crashes=1,
    lost_answers=1,
)
GANG_TIME = Bound(
    "31 s pass at any time, two claims of one pod, one executor",
    (_GANG,),
    ("n0",),
    early_ticks=1,
    attempts=2,
    ahead=0,
    late_executors=False,
)
GANG_LAGGING_VOIDS = Bound(
    "one of two claims of one pod is voided, one executor",
    (_GANG,),
    ("n0",),
    lagging_voids=1,
    attempts=2,
    late_executors=False,
)
GANG_LAGGING_VOIDS_LATE = Bound(
    "one of two claims of one pod is voided", (_GANG,), ("n0",), lagging_voids=1, attempts=2
)
GANG_LAGGING_VOIDS_ONE = replace(
    GANG_LAGGING_VOIDS_LATE,
    name="one of two claims of one pod is voided, one replica",
    nodes=("n0",),
    replicas=1,
    ahead=0,
)
GANG_REPLACED = Bound(
    "two claims of one pod, a leader was replaced, 31 s pass at any time",
    (_GANG,),
    ("n0",),
    early_ticks=1,
    attempts=2,
    ahead=0,
    replaced_leaders=True,
)
GANG_REPLACED_ONCE = replace(GANG_REPLACED, name=f"{GANG_REPLACED.name}, no second try", attempts=1)
GANG_CRASH_TIME = Bound(
    "two claims of one pod, a replica dies, 31 s pass at any time, no second try",
    (_GANG,),
    crashes=1,
    early_ticks=1,
    attempts=1,
    ahead=0,
)

CHECKPOINTS = Bound(
    "31 s pass at any time, with checkpoints, a replica dies",
    (_P, PodKind("Q", (WHOLE,))),
    ("n0",),
    crashes=1,
    checkpoints=True,
    early_ticks=1,
)
GANG_CHECKPOINTS = replace(GANG_TIME, name=f"{GANG_TIME.name}, with checkpoints", checkpoints=True)

REFUSED = Bound(
    "a claim can't be written for a while",
    (PodKind("P", (WHOLE,)), PodKind("Q", (WHOLE,))),
    ("n0",),
    replicas=1,
    refusals=1,
    permits=1,
    attempts=2,
    ahead=0,
)
REFUSED_STATUS = replace(
    REFUSED,
    name="neither a claim nor its status can be written for a while",
    refused_writes=RefusedWrites.EVERYTHING,
)
FULL_ANNOTATIONS = replace(
    REFUSED,
    name="the annotations of a claim are full",
    refused_writes=RefusedWrites.GROWTH,
    permits=0,
)
REFUSED_GANG = Bound(
    "one of two claims of one pod can't be written for a while, no second try",
    (_GANG,),
    ("n0",),
    replicas=1,
    refusals=1,
    permits=1,
    attempts=1,
    ahead=0,
)
REFUSED_TWO = replace(REFUSED, name=f"{REFUSED.name}, two replicas", replicas=2)
REFUSED_TIME = replace(
    REFUSED_STATUS, name=f"{REFUSED_STATUS.name}, 31 s pass at any time", early_ticks=1
)
REFUSED_GANG_AGAIN = replace(
    REFUSED_GANG, name="one of two claims of one pod can't be written", permits=0, attempts=2
)

_MEMBERS = (PodKind("P", (WHOLE,), is_member=True), PodKind("R", (WHOLE,), is_member=True))
_HALVES = (PodKind("P", (HALF,), is_member=True), PodKind("R", (HALF,), is_member=True))

GROUP = Bound(
    "a PodGroup of two pods, one executor",
    (*_MEMBERS, _Q_LATER),
    group_minimum=2,
    late_executors=False,
    ahead=0,
)
GROUP_CRASH = replace(
    GROUP,
    name="a PodGroup whose decision has two parts, an answer is lost, a replica dies, one executor",
    pods=_MEMBERS,
    pods_in_parts=True,
    interruptions=3,
    crashes=1,
    lost_answers=1,
)
GROUP_TIME = replace(
    GROUP,
    name="a PodGroup, 31 s pass at any time, one executor",
    pods=_HALVES,
    nodes=("n0",),
    early_ticks=1,
    attempts=2,
)
GROUP_TIME_ONE = replace(
    GROUP_TIME,
    name="a PodGroup and a pod that wants its device, 31 s pass at any time, one replica",
    pods=(*_HALVES, _Q_LATER),
    replicas=1,
)
GROUP_LOSS = replace(
    GROUP_TIME,
    name="a PodGroup that loses a pod, one executor",
    pods=_HALVES,
    replicas=1,
    early_ticks=0,
    deleted_pods=1,
)
GROUP_VOIDS = replace(
    GROUP_TIME,
    name="a replica behind the log has a pod of a PodGroup voided, one executor",
    pods=_HALVES,
    early_ticks=0,
    lagging_voids=1,
)
GROUP_LATE = replace(
    GROUP_TIME,
    name="a PodGroup, any number of executors, no second try",
    pods=_HALVES,
    replicas=1,
    early_ticks=1,
    attempts=1,
    late_executors=True,
)
GROUP_CHECKPOINTS = replace(
    GROUP_CRASH,
    name="a PodGroup in two parts, with checkpoints, the replica dies, 31 s pass at any time",
    pods=_HALVES,
    nodes=("n0",),
    replicas=1,
    interruptions=1,
    lost_answers=0,
    checkpoints=True,
    early_ticks=1,
    attempts=2,
)
GROUP_CHECKPOINTS_TWO = replace(
    GROUP_CHECKPOINTS,
    name="a PodGroup in two parts, two replicas, checkpoints, an answer is lost, a replica dies",
    replicas=2,
    interruptions=3,
    lost_answers=1,
    early_ticks=0,
)

SMALL = (
    CRASH,
    GANG,
    TIME,
    CHECKPOINTS,
    LAGGING_VOIDS,
    REFUSED,
    REFUSED_STATUS,
    FULL_ANNOTATIONS,
    REFUSED_GANG,
    GROUP,
    GROUP_LOSS,
    GROUP_VOIDS,
    GROUP_LATE,
    GROUP_CHECKPOINTS_TWO,
)
FULL = (
    *SMALL,
    REFUSED_TWO,
    REFUSED_TIME,
    REFUSED_GANG_AGAIN,
    ANSWERS,
    NODE,
    POD,
    GANG_CRASH,
    GANG_CRASH_TIME,
    GANG_TIME,
    GANG_CHECKPOINTS,
    GANG_LAGGING_VOIDS,
    GANG_LAGGING_VOIDS_LATE,
    GANG_REPLACED,
    GROUP_CRASH,
    GROUP_TIME,
    GROUP_TIME_ONE,
    GROUP_CHECKPOINTS,
)
