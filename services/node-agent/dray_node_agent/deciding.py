"""The one seam where the node-agent's inputs and pure decisions cross.

A question says all that its answer depends on, so that its line in the journal can be replayed
by itself.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

import msgspec

from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, SLICES, Object
from dray.recording.journal import Notes
from dray.recording.questions import RuleInput, by_name, name_of
from dray.recording.redaction import redacted
from dray_node_agent.boards.ports import Reading
from dray_node_agent.comparing import Changes, Path, changes, generation_of, is_published
from dray_node_agent.inventory import NodeState, Stock, slices, unhealthy
from dray_node_agent.kubelet.devices import (
    CardFullError,
    NotPreparedError,
    planned,
    require_room,
    uses,
)
from dray_node_agent.kubelet.prepared import PreparedClaim

A = TypeVar("A")


class Question(RuleInput, Generic[A], frozen=True, kw_only=True):
    """What is asked, with all that the answer depends on."""

    @abstractmethod
    def answer(self) -> A:
        """The answer. Pure."""

    def redacted(self) -> Self:
        """The question as the journal has it."""
        return self

    def redacted_answer(self, answer: A) -> A:
        """Its answer as the journal has it."""
        return answer


Ask = Callable[[Question[A]], A]


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """What the node's slices are to be."""

    generation: int
    writes: Changes | None
    """None: they are that already."""
    unhealthy: tuple[str, ...]
    """Names of the devices that are not to be given out."""


class Publish(Question[Publication], frozen=True, kw_only=True, tag="publish"):
    """How the node's slices come to show a reading of its board."""

    reading: Reading
    state: NodeState
    existing: tuple[Object, ...]
    """The slices there are."""
    dropped: tuple[Path, ...] = ()
    """Fields that the server is known not to keep; sorted."""
    floor: int = 0
    """A generation that the node has had."""
    remembered: int = 0
    """The generation on disk."""

    def answer(self) -> Publication:
        sick = unhealthy(self.reading)
        current = generation_of(self.existing)
        wanted = slices(self.reading, self.state, generation=current)
        is_current = bool(self.existing) and current >= self.floor
        if is_current and is_published(wanted, self.existing, self.dropped):
            return Publication(generation=current, writes=None, unhealthy=sick)
        generation = max(current, self.floor, self.remembered) + 1
        wanted = slices(self.reading, self.state, generation=generation)
        writes = changes(wanted, self.existing)
        return Publication(generation=generation, writes=writes, unhealthy=sick)

    def redacted(self) -> Self:
        return msgspec.structs.replace(self, existing=_slices(self.existing))

    def redacted_answer(self, answer: Publication) -> Publication:
        if answer.writes is None:
            return answer
        made = (answer.writes.deletes, answer.writes.updates, answer.writes.creates)
        return msgspec.structs.replace(answer, writes=Changes(*map(_slices, made)))


def _slices(objects: tuple[Object, ...]) -> tuple[Object, ...]:
    return tuple(redacted(SLICES.plural, one) for one in objects)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a claim is not prepared, in the words that the kubelet shows."""

    why: str
    full: bool = False
    """Whether a card has no room beside those who hold it; some may have died."""


class Prepare(Question[PreparedClaim | Refusal], frozen=True, kw_only=True, tag="prepare"):
    """What a claim gets on this node: cards, limits and CDI devices."""

    claim: Object
    """As the API server has it."""
    uid: str
    """Of the claim that the kubelet means."""
    node: str
    reading: Reading
    state: NodeState
    held: tuple[PreparedClaim, ...] = ()
    """The other claims that are prepared here."""
    was_unprepared: bool = False
    """Whether the kubelet has ended this claim before."""
    traceparent: str = ""

    def answer(self) -> PreparedClaim | Refusal:
        claim = claim_from(self.claim)
        # The kubelet reserves before it prepares: this call was overtaken by its Unprepare.
        if self.was_unprepared and not claim.reserved_for:
            where = f"claim {claim.namespace}/{claim.name}"
            why = f"{where} was unprepared here and no pod reserves it: a late retry"
            return Refusal(why=why)
        if claim.spec.unreadable:
            where = f"claim {claim.namespace}/{claim.name}"
            return Refusal(why=f"{where} {claim.spec.unreadable}")
        stock = Stock(self.reading, self.state)
        try:
            wanted = uses(claim, self.uid, self.node, stock.offers)
            require_room(wanted, self.held)
        except NotPreparedError as error:
            return Refusal(why=str(error), full=isinstance(error, CardFullError))
        return planned(claim, wanted, stock.qos, self.traceparent)

    def redacted(self) -> Self:
        return msgspec.structs.replace(self, claim=redacted(CLAIMS.plural, self.claim))


class IsLive(Question[bool], frozen=True, kw_only=True, tag="is-live"):
    """Whether a claim that is prepared here is still what the API server has, allocated."""

    uid: str
    claim: Object | None
    """None: there is none of that name."""

    def answer(self) -> bool:
        if self.claim is None:
            return False
        claim = claim_from(self.claim)
        return claim.uid == self.uid and claim.allocation is not None

    def redacted(self) -> Self:
        kept = self.claim and redacted(CLAIMS.plural, self.claim)
        return msgspec.structs.replace(self, claim=kept)


QUESTIONS: dict[str, type[Question[Any]]] = by_name(IsLive, Prepare, Publish)
"""By the name that the journal has."""


class Seam:
    """Asks, and tells the journal, if there is one."""

    def __init__(self, notes: Notes | None = None) -> None:
        self._notes = notes

    def ask(self, question: Question[A]) -> A:
        """The answer of the pure code."""
        answer = question.answer()
        if self._notes is not None:
            kept = question.redacted_answer(answer)
            self._notes.decided(name_of(type(question)), question.redacted(), told(kept))
        return answer


def told(answer: Any) -> Any:
    """An answer as the journal has it: what it is, beside what it says."""
    return answer if isinstance(answer, bool) else {type(answer).__name__: answer}


def decide_again(about: str, data: Any) -> Any:
    """The answer that this code gives to a recorded question.

    Raises KeyError for a question that it does not know, msgspec.ValidationError where the
    question does not fit.
    """
    question = msgspec.convert(data, QUESTIONS[about])
    return told(question.redacted_answer(question.answer()))
