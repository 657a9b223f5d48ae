"""Inputs and answers of services other than the allocator, while recording is on.

Only ``dray record`` and ``dray replay`` use them. Kubernetes objects are reduced to what decisions
read (``dray.recording.redaction``).
"""

from typing import Any, ClassVar, Literal

import msgspec

from dray.messages.base import Kind, Message
from dray.messages.rpc import Lookup, LookupReply

MUTATE_POD = "mutate-pods"


class LookedUp(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the webhook sent for one admission call, and its answer."""

    question: Lookup
    answer: LookupReply


class Reviewed(Message, frozen=True, kw_only=True):
    """All inputs of one answer of the webhook, except the facts that it had folded."""

    KIND: ClassVar[Kind] = "input"
    NAME: ClassVar[str] = "webhook"

    instance: str
    uid: str
    """The UID of the AdmissionReview."""
    path: str = MUTATE_POD
    """The path of the webhook: ``mutate-pods``, ``validate-pods``, ``mutate-claims``,
    ``validate-claims``, ``validate-pools``."""
    facts_sequence: int
    """Sequence of the last fact about pools, policies, templates and the server that it had
    folded."""
    facts_created: str = ""
    """When the stream of these facts was created. A webhook answers from memory while the bus is
    away, even if the stream is re-created meanwhile."""
    caught_up: bool
    """Whether it had then folded all such facts."""
    request: dict[str, Any]
    """The AdmissionRequest as the webhook read it, with redacted objects."""
    redacted: bool = False
    """Whether the objects are redacted. Earlier releases wrote whole objects; ``dray record``
    leaves these messages out."""
    traceparent: str = ""
    """For pods: the trace that begins with the answer."""
    looked_up: tuple[LookedUp, ...] = ()
    settings: dict[str, Any]
    """Settings on which the answer depends."""
    answer: dict[str, Any]
    """The AdmissionReview with the answer."""

    def ids(self) -> tuple[str, ...]:
        return (self.instance,)

    def key(self) -> str:
        key = f"{self.instance}.{self.uid}"
        return key if self.path == MUTATE_POD else f"{key}.{self.path}"


class Noted(Message, frozen=True, kw_only=True):
    """A line of a service's journal: an event that it consumed, or a question to its pure code with
    the answer. The lines of one life are replayed in the order of ``number``.
    """

    KIND: ClassVar[Kind] = "input"

    instance: str
    life: str
    """Distinguishes processes of the same instance."""
    number: int
    """Number of the line within its life, from 1. A missing line was dropped while the bus was
    away."""
    what: Literal["known", "consumed", "decided", "part"]
    """``known``: the complete state, from which replay can begin.
    ``part``: a piece of the next line's text, which was too long for one message."""
    about: str = ""
    """The kind of event (``consumed``), or the rule (``decided``)."""
    data: Any = None
    """The event, or the question with its inputs other than events."""
    answer: Any = None
    redacted: bool = False
    """Whether Kubernetes objects are redacted. Earlier releases wrote whole objects; ``dray
    record`` leaves these lines out."""

    def ids(self) -> tuple[str, ...]:
        return (self.instance,)

    def key(self) -> str:
        return f"{self.instance}.{self.life}.{self.number}"


class ControllerNoted(Noted, frozen=True, kw_only=True):
    """A line of a claim-controller's journal."""

    NAME: ClassVar[str] = "claim-controller"


class AgentNoted(Noted, frozen=True, kw_only=True):
    """A line of a node-agent's journal."""

    NAME: ClassVar[str] = "node-agent"


INPUTS: tuple[type[Message], ...] = (Reviewed, ControllerNoted, AgentNoted)
