"""Events that the pure core handles, and effects that the replica executes."""

import msgspec

from dray.messages.commands import VoidClaim
from dray.messages.decisions import AnyRecord
from dray.messages.facts import Fact
from dray_allocator.values.undecodable import UndecodableFact


class FactSeen(msgspec.Struct, frozen=True, gc=False):
    """The next fact of the facts stream."""

    sequence: int
    fact: Fact | UndecodableFact
    more: bool = False
    """More facts are available: only fold this one; decide after the last of them."""
    whole: bool = True
    """False: earlier facts are missing because later facts, which are not read yet, replaced them.
    The folded state then never existed in the cluster, so nothing is decided."""


class Subscribe(msgspec.Struct, frozen=True, gc=False):
    """From now on, fold only the facts and logs of these pools; None: of all pools."""

    pools: tuple[str, ...] | None


class EarlierFact(msgspec.Struct, frozen=True, gc=False):
    """A fact of a newly subscribed pool, read apart from those in order."""

    sequence: int
    fact: Fact | UndecodableFact


class EarlierFactsRead(msgspec.Struct, frozen=True, gc=False):
    """All earlier facts of these pools (None: all) were read; the last has ``sequence``."""

    pools: tuple[str, ...] | None
    sequence: int


class FactsLost(msgspec.Struct, frozen=True, gc=False):
    """The facts stream was re-created: everything known from it is forgotten."""


class RecordSeen(msgspec.Struct, frozen=True, gc=False):
    """The next record of a domain's decision log."""

    domain: str
    epoch: int
    sequence: int
    record: AnyRecord
    more: bool = False


class RecordUndecodable(msgspec.Struct, frozen=True, gc=False):
    """This release can't decode the next record of a domain's log. The record may be an allocation,
    and all later records build on it."""

    domain: str
    epoch: int
    why: str


class LogLost(msgspec.Struct, frozen=True, gc=False):
    """The log's stream is missing: nothing is decided until a new epoch is announced."""

    domain: str
    epoch: int


class LogShortened(msgspec.Struct, frozen=True, gc=False):
    """The log lost its newest records; the others are read from the start."""

    domain: str
    epoch: int


class Serve(msgspec.Struct, frozen=True, gc=False):
    """This replica holds the domain's lease; it may decide once it folded ``last_sequence``."""

    domain: str
    epoch: int
    last_sequence: int


class StandBy(msgspec.Struct, frozen=True, gc=False):
    """This replica no longer serves the domain."""

    domain: str


class AppendFailed(msgspec.Struct, frozen=True, gc=False):
    """An append failed or its outcome is unknown: what was decided since is forgotten."""

    domain: str
    epoch: int
    reason: str


class Continue(msgspec.Struct, frozen=True, gc=False):
    """Continue with active pods and unfinished searches."""


Event = (
    FactSeen
    | Subscribe
    | EarlierFact
    | EarlierFactsRead
    | FactsLost
    | RecordSeen
    | RecordUndecodable
    | LogLost
    | LogShortened
    | Serve
    | StandBy
    | AppendFailed
    | Continue
)


class Append(msgspec.Struct, frozen=True, gc=False):
    """Append to the domain's log, if its last sequence is ``expected_last``.

    ``chained``: it builds on the append before it, which is not confirmed yet. A record of
    another writer may have taken the predicted sequence, so the bus must also know after
    which record this one is to stand.
    """

    domain: str
    epoch: int
    record: AnyRecord
    expected_last: int
    chained: bool = False
    term: int = 0
    """``SchedulingDomain.term``: the failure of an append of an earlier term does not concern this
    term."""


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a command."""

    command: VoidClaim


class Follow(msgspec.Struct, frozen=True, gc=False):
    """Read the domain's log of this epoch, and no other one."""

    domain: str
    epoch: int
    start: int = 1
    """Sequence of the first record to read."""


class Unfollow(msgspec.Struct, frozen=True, gc=False):
    """The domain is gone, or others serve it."""

    domain: str


class StopServing(msgspec.Struct, frozen=True, gc=False):
    """What was appended is forgotten, because records were trimmed before they were read: serve the
    domain again once its log is read."""

    domain: str


class DoublyAllocated(msgspec.Struct, frozen=True, gc=False):
    """A device is allocated beyond its capacity: an alarm."""

    device: str
    claim_uid: str
    detail: str


Effect = Append | Send | Follow | Unfollow | StopServing | DoublyAllocated
