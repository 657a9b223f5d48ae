"""A state of everything, and a step from one to the next."""

from dataclasses import dataclass
from typing import NamedTuple

UNCHAINED, UNSENT, ORPHAN = -1, -2, -3
"""What an append must follow: nothing, one that is still before it, one that was refused."""


Commands = tuple[tuple[int, int], ...]
"""Claims (subjects) and attempts to be voided."""


class Sent(NamedTuple):
    """An append on its way: the record, the last sequence it expects, and the sequence of the
    record that it must follow directly."""

    record: int
    expected: int
    after: int


class ReplicaAt(NamedTuple):
    """A replica: its state, and what it has sent. It has read all that there is."""

    local: int
    sent: tuple[Sent, ...] = ()


class ModelGivenUp(NamedTuple):
    """Attempts of a claim that are given up though that could not be written on it."""

    claim: int
    record: int
    """The ``ModelGivenUp``, by its number."""
    at: int
    """Which version of the claim was read, counted from its first."""


class Spent(NamedTuple):
    """How much of the bound's harms was done."""

    crashes: int = 0
    lost_answers: int = 0
    early_ticks: int = 0
    deleted_pods: int = 0
    lost_nodes: int = 0
    hasty_voids: int = 0
    refusals: int = 0
    permits: int = 0
    closing_ticks: int = 0


class State(NamedTuple):
    """Everything. Numbers are those of ``Subjects``, ``Replicas`` and ``Executors``."""

    objects: tuple[tuple[int, ...], ...]
    """Per subject, its versions from the first to the newest."""
    published: tuple[int, ...]
    """Per subject, which of its versions is the last that was published."""
    log: tuple[int, ...]
    """Records; who wrote one is forgotten once everybody has read it."""
    replicas: tuple[ReplicaAt, ...]
    voids: Commands
    """Sent, and not without effect yet. Each may arrive at any time, and again."""
    spent: Spent
    refused: tuple[int, ...] = ()
    """Claims that the server refuses to write now."""
    given_up: tuple[ModelGivenUp, ...] = ()
    """In order, published as soon as it is so; the last one of a claim counts."""


class Action(NamedTuple):
    """What happened: its kind, who or what, and what it made."""

    kind: str
    who: int = -1
    what: int = -1
    why: str = ""


class Next(NamedTuple):
    """A step: harm is what need not happen."""

    action: Action
    state: State
    fault: bool
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelBus:
    """What the bus promises; a mutation takes it away."""

    fenced: bool = True
    """An append is refused whose writer has not folded the log's last record."""
    chained: bool = True
    """An append is refused if the one that it builds on was."""
    leased: bool = True
    """Who leads no more does not write by what it has read since: not the bus' promise, but the
    Lease's."""


def exchanged(state: State) -> State:
    """The one of this state and the same with both replicas exchanged that comes first."""
    ordered = tuple(sorted(state.replicas))
    return state if ordered == state.replicas else state._replace(replicas=ordered)


def newest_of(state: State) -> dict[int, int]:
    """What is given up of each claim by now."""
    return {one.claim: one.record for one in state.given_up}


def with_replica(state: State, index: int, one: ReplicaAt) -> State:
    replicas = state.replicas
    return state._replace(replicas=(*replicas[:index], one, *replicas[index + 1 :]))
