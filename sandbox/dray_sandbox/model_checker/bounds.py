"""The bounds that are searched: a few seconds' worth in the tests, a minute's by ``make explore``.

Two replicas (one, where only executors are in question), any number of executors, two nodes with a
card each (one, where pods are to compete), at most three attempts of a claim, everywhere. Groups of
pods are not built yet: a pod with two claims, which are decided and taken back together, stands for
them.
"""

from dataclasses import replace

from dray_sandbox.model_checker.bound import Bound, PodKind, PublicationMode, Refuses

HALF, WHOLE = 156, 312
_P = PodKind("P", (HALF,))
_Q_LATER = PodKind("Q", (WHOLE,), late=True)
_GANG = PodKind("P", (HALF, HALF))

CRASH = Bound("a replica dies", (_P, _Q_LATER), crashes=1)
GANG = Bound("two claims of one pod", (_GANG, _Q_LATER))
ANSWERS = Bound("an answer is lost, a replica dies", (_P, _Q_LATER), crashes=1, lost_answers=1)
TIME = Bound("31 s pass at any time", (_P, PodKind("Q", (WHOLE,))), ("n0",), early_ticks=1)
HASTY = Bound(
    "a replica behind the log has claims voided",
    (_P, PodKind("Q", (WHOLE,))),
    ("n0",),
    hasty_voids=1,
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
GANG_HASTY = Bound(
    "one of two claims of one pod is voided, one executor",
    (_GANG,),
    ("n0",),
    hasty_voids=1,
    attempts=2,
    late_executors=False,
)
GANG_HASTY_LATE = Bound(
    "one of two claims of one pod is voided", (_GANG,), ("n0",), hasty_voids=1, attempts=2
)
GANG_HASTY_ONE = replace(
    GANG_HASTY_LATE,
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
    refuses=Refuses.EVERYTHING,
)
FULL_ANNOTATIONS = replace(
    REFUSED, name="the annotations of a claim are full", refuses=Refuses.GROWTH, permits=0
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

SMALL = (CRASH, GANG, TIME, HASTY, REFUSED, REFUSED_STATUS, FULL_ANNOTATIONS, REFUSED_GANG)
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
    GANG_HASTY,
    GANG_HASTY_LATE,
    GANG_REPLACED,
)
