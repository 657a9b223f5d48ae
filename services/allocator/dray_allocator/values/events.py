"""Events that the pure core handles, and effects that the replica executes."""

from dataclasses import dataclass

import msgspec

from dray.messages.commands import VoidClaim
from dray.messages.decisions import AnyRecord
from dray.messages.facts import Fact
from dray_allocator.values.undecodable import UndecodableFact


class FactSeen(msgspec.Struct, frozen=True):
    """The next fact of the facts stream."""

    sequence: int
    fact: Fact | UndecodableFact
    more: bool = False
    """More facts are at hand: fold only, decide with the last of them."""
    whole: bool = True
    """False: facts before it are missing because later ones, still to come, replaced them.
    What is folded is then no state that the cluster ever had, and nothing is decided."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Fold the facts and logs of these pools from now on, and no others; None: of all pools."""

    pools: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class EarlierFact:
    """A fact of a newly subscribed pool, read apart from those in order."""

    sequence: int
    fact: Fact | UndecodableFact


@dataclass(frozen=True, slots=True)
class EarlierFactsRead:
    """All earlier facts of these pools (None: all) were read; the last has ``sequence``."""

    pools: tuple[str, ...] | None
    sequence: int


@dataclass(frozen=True, slots=True)
class FactsLost:
    """The facts stream was re-created: everything known from it is forgotten."""


class RecordSeen(msgspec.Struct, frozen=True):
    """The next record of a domain's decision log."""

    domain: str
    epoch: int
    sequence: int
    record: AnyRecord
    more: bool = False


@dataclass(frozen=True, slots=True)
class RecordUndecodable:
    """The next record of a domain's log is one that this release can't decode: it may be an
    allocation, and all behind it build on it."""

    domain: str
    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class LogLost:
    """The log's stream is missing: nothing is decided until a new epoch is announced."""

    domain: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LogShortened:
    """The log lost its newest records; the others are read from the start."""

    domain: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Serve:
    """This replica holds the domain's lease; it may decide once it folded ``last_sequence``."""

    domain: str
    epoch: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class StandBy:
    """This replica no longer serves the domain."""

    domain: str


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """An append failed or its outcome is unknown: what was decided since is forgotten."""

    domain: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Continue:
    """Continue with active pods and unfinished searches."""


READ = (FactSeen, RecordSeen)
"""Events that are read from a stream, in order."""

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


@dataclass(frozen=True, slots=True)
class Append:
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


@dataclass(frozen=True, slots=True)
class Send:
    """Send a command."""

    command: VoidClaim


@dataclass(frozen=True, slots=True)
class Follow:
    """Read the domain's log of this epoch, and no other one."""

    domain: str
    epoch: int
    start: int = 1
    """Sequence of the first record to read."""


@dataclass(frozen=True, slots=True)
class Unfollow:
    """The domain is gone, or others serve it."""

    domain: str


@dataclass(frozen=True, slots=True)
class StopServing:
    """What was appended is forgotten, because records that were not read are trimmed: serve the
    domain again once its log is read."""

    domain: str


@dataclass(frozen=True, slots=True)
class DoublyAllocated:
    """A device is allocated beyond its capacity: an alarm."""

    device: str
    claim_uid: str
    detail: str


Effect = Append | Send | Follow | Unfollow | StopServing | DoublyAllocated
