"""States of the model, and steps between them."""

from dataclasses import dataclass
from typing import NamedTuple

UNCHAINED, UNSENT, ORPHAN = -1, -2, -3
"""An append's predecessor: none, one that is still pending, one that was refused."""


Commands = tuple[tuple[int, int], ...]
"""Claims (subjects) and attempts to be voided."""


class Sent(NamedTuple):
    """A pending append: the record, the expected last sequence, and the sequence of the record that
    it must follow directly."""

    record: int
    expected: int
    after: int


class ReplicaAt(NamedTuple):
    """A replica's state and pending appends. It has read everything."""

    local: int
    sent: tuple[Sent, ...] = ()


class ModelGivenUp(NamedTuple):
    """Given-up attempts of a claim that can't be written."""

    claim: int
    record: int
    """The ``ModelGivenUp``, by its number."""
    at: int
    """The index of the claim's version that was read."""


class Spent(NamedTuple):
    """Numbers of faults so far, limited by the bound."""

    crashes: int = 0
    lost_answers: int = 0
    early_ticks: int = 0
    deleted_pods: int = 0
    lost_nodes: int = 0
    lagging_voids: int = 0
    refusals: int = 0
    permits: int = 0
    closing_ticks: int = 0


class State(NamedTuple):
    """A state. Its numbers are those of ``Subjects``, ``ModelReplicas`` and ``Executors``."""

    objects: tuple[tuple[int, ...], ...]
    """Versions by subject, from the first to the newest."""
    published: tuple[int, ...]
    """Index of the last published version, by subject."""
    log: tuple[int, ...]
    """Records, without their writers."""
    replicas: tuple[ReplicaAt, ...]
    voids: Commands
    """Sent commands that still have an effect. Each may arrive at any time, and repeatedly."""
    spent: Spent
    refused: tuple[int, ...] = ()
    """Claims whose writes the server refuses now."""
    given_up: tuple[ModelGivenUp, ...] = ()
    """In order, published at once; the last one of a claim counts."""


class Action(NamedTuple):
    """An action: its kind, actor or subject, result, and reason."""

    kind: str
    who: int = -1
    what: int = -1
    why: str = ""


class Next(NamedTuple):
    """A step; ``fault``: it does not have to happen."""

    action: Action
    state: State
    fault: bool
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelBus:
    """Guarantees of the bus; mutations remove them."""

    fenced: bool = True
    """An append is refused if its writer has not folded the log's last record."""
    chained: bool = True
    """An append is refused if the one that it builds on was."""
    leased: bool = True
    """A former leader does not write what it has read since its term; guaranteed by the Lease."""


def exchanged(state: State) -> State:
    """The smaller of this state and the same state with exchanged replicas."""
    ordered = tuple(sorted(state.replicas))
    return state if ordered == state.replicas else state._replace(replicas=ordered)


def newest_of(state: State) -> dict[int, int]:
    """The newest record of given-up attempts, by claim."""
    return {one.claim: one.record for one in state.given_up}


def with_replica(state: State, index: int, one: ReplicaAt) -> State:
    replicas = state.replicas
    return state._replace(replicas=(*replicas[:index], one, *replicas[index + 1 :]))
