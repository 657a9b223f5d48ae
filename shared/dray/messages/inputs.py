"""What services other than the allocator consumed and answered, while recording is on.

Nothing acts on it: it is for ``dray record`` and ``dray replay`` alone.
"""

from typing import Any, ClassVar

import msgspec

from dray.messages.base import Kind, Message
from dray.messages.rpc import Lookup, LookupReply


class LookedUp(msgspec.Struct, frozen=True, kw_only=True):
    """A question that the webhook asked for one call, and its answer."""

    question: Lookup
    answer: LookupReply


class PodReviewed(Message, frozen=True, kw_only=True):
    """All that the webhook's answer for a pod followed from, beside the facts it had folded."""

    KIND: ClassVar[Kind] = "input"
    NAME: ClassVar[str] = "webhook"

    instance: str
    uid: str
    """Of the AdmissionReview."""
    facts_sequence: int
    """Last fact of pools, policies, templates and the server that it had folded."""
    caught_up: bool
    """Whether no further such fact was waiting then."""
    request: dict[str, Any]
    """The AdmissionRequest as the webhook read it."""
    traceparent: str
    looked_up: tuple[LookedUp, ...] = ()
    settings: dict[str, Any]
    """Settings that the answer depends on."""
    answer: dict[str, Any]
    """The AdmissionReview with the answer."""

    def ids(self) -> tuple[str, ...]:
        return (self.instance,)

    def key(self) -> str:
        return f"{self.instance}.{self.uid}"


INPUTS: tuple[type[Message], ...] = (PodReviewed,)
