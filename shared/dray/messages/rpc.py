"""Questions with an answer, over plain request and reply."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec

from dray.domain.claims import AllocatedDevice
from dray.domain.pods import Policy, Pool
from dray.messages.facts import TemplateObserved

LOOKUP_SUBJECT = "dray.rpc.lookup"
DUMP_SUBJECT = "dray.rpc.dump"


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """The webhook's one question before a negative answer, answered from a live GET; or, of kind
    ``overlap``, before it warns of a GPUPool, answered from what the claim-controller watches."""

    SUBJECT: ClassVar[str] = LOOKUP_SUBJECT

    kind: Literal["pool", "policy", "template", "overlap"]
    name: str
    namespace: str = ""
    selector: tuple[tuple[str, str], ...] | None = None
    """Of ``overlap``: the pool's ``spec.nodeSelector``; None: nodes that are labelled with its
    name."""


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that a pool selects, or would, and that other pools have."""

    count: int
    nodes: tuple[tuple[str, str], ...] = ()
    """The first of them, each with its pool."""


class LookupReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the API server holds; all absent: no such object."""

    pool: Pool | None = None
    policy: Policy | None = None
    template: TemplateObserved | None = None
    overlap: Overlap | None = None
    error: str = ""
    """Why the API server could not be asked."""


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """What the replica that serves a domain believes; the others leave the answer to it."""

    SUBJECT: ClassVar[str] = DUMP_SUBJECT

    domain: str
    after: str = ""
    """Only claims with a greater uid: an answer is a page, in the order of their uids."""


class Holding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an allocator holds about one claim: the log's last word, and what counts as used."""

    uid: str
    namespace: str
    name: str
    attempt: int = 0
    """The latest of the log; 0: the log has none."""
    stage: str = ""
    """Where it stands: ``held``, ``committed`` or ``over``; empty without one."""
    decided_unix_s: float = 0.0
    decided: tuple[AllocatedDevice, ...] = ()
    """What that attempt gave."""
    used: tuple[AllocatedDevice, ...] = ()
    """What counts against the devices now, by whichever log or status."""


class DumpReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One page of the state, and how far its replica had read."""

    domain: str
    instance: str = ""
    epoch: int = 0
    facts_sequence: int = 0
    log_sequence: int = 0
    """Of the last record that was read back."""
    holdings: tuple[Holding, ...] = ()
    more: bool = False
    """Whether there is a next page, after the last of these uids."""
    error: str = ""
    """Why the question could not be answered."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its answer, and the two sides."""

    name: str
    asked: type[Lookup | Dump]
    reply: type[LookupReply | DumpReply]
    asks: str
    answers: str


QUESTIONS = (
    Question("lookup", Lookup, LookupReply, "webhook", "claim-controller (any one instance)"),
    Question("dump", Dump, DumpReply, "dray doctor", "allocator (the one that serves the domain)"),
)
