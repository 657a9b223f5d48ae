"""What a search takes in: the world at its beginning, and how much may go wrong in it."""

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class PodKind:
    """A pod that dray binds, and what each of its claims asks for, in virtual tflops of a card
    of 312. The claims of one pod are decided and executed together, all or none."""

    name: str
    claims: tuple[int, ...]
    late: bool = False
    """Created at any time, not there at the beginning."""


class PublicationMode(Enum):
    """In which order facts are published; late they may be in any."""

    IN_ORDER = auto()
    """As the server changed the objects."""
    BY_KIND = auto()
    """Kinds overtake each other, as their watches do."""
    BY_OBJECT = auto()
    """Objects of one kind do, too."""


class Refuses(Enum):
    """Which writes of a claim the API server refuses."""

    GROWTH = auto()
    """That make it larger: its annotations are full."""
    OBJECT = auto()
    """All but those of its status."""
    EVERYTHING = auto()


@dataclass(frozen=True, slots=True)
class Bound:
    """Pods that are there at the beginning, and how often each harm may be done.

    What comes late, twice or never, who is asleep and who is behind need no budget: a search
    visits all of it.
    """

    name: str
    pods: tuple[PodKind, ...]
    nodes: tuple[str, ...] = ("n0", "n1")
    """One card each."""
    replicas: int = 2
    crashes: int = 0
    """Of replicas, which begin again from what the bus holds."""
    lost_answers: int = 0
    """Appends that were stored and whose writer hears that they may not have been."""
    early_ticks: int = 0
    """Times that 31 s pass while work is still to be done; then nothing is in time any more."""
    deleted_pods: int = 0
    lost_nodes: int = 0
    refusals: int = 0
    """Times that the API server begins to refuse a claim's writes."""
    refuses: Refuses = Refuses.OBJECT
    permits: int = 0
    """Times that it ceases to; it may do so at any time, or never."""
    hasty_voids: int = 0
    """Times that a replica which is behind the log asks for a claim to be voided."""
    attempts: int = 3
    """Of a claim; what would come of more is not looked at."""
    ahead: int = 1
    """Appends on their way for which a replica still acts on."""
    publication: PublicationMode = PublicationMode.IN_ORDER
    late_executors: bool = True
    """Whether any number of executors carries decisions out, each with a picture as old as it
    likes; else one, which sees its own writes at once."""
    replaced_leaders: bool = False
    """Whether a claim-controller that leads no more, and has not noticed yet, may read the log
    anew while its watches are behind: it then knows of a commit that it has not seen."""
    closing_ticks: int = 4
    """Times that 31 s pass once nothing is left to be done; what is wrong then stays wrong."""
