"""Reduces facts that are too large for a message on the bus. Pure.

A reduced fact keeps what affects others: the devices that a claim holds. It loses what decisions
are based on, so that nothing is decided by half of it: a reduced claim, pod or template says why it
can't be used.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from dray.api.claims import TOO_LARGE, ClaimSpec
from dray.api.nodes import NOWHERE
from dray.api.pods import NodeExpression
from dray.messages.base import encode, sent_bytes
from dray.messages.facts import ClaimObserved, Fact, PodObserved, SliceObserved, TemplateObserved

_ROOM_BYTES = 4096
"""Room for headers that are added when a fact is published."""


def size_bytes(fact: Fact) -> int:
    """The size of a fact on the bus, without what is added when it is published."""
    message = encode(fact, source="", now_unix_s=0.0)
    return sent_bytes(message.payload, message.headers)


def fit_to_limit(fact: Fact, limit_bytes: int) -> Fact | None:
    """The fact, reduced as far as needed for a bus that takes ``limit_bytes``; None if no reduction
    is enough."""
    full_bytes = size_bytes(fact)
    most_bytes = limit_bytes - _ROOM_BYTES
    if full_bytes <= most_bytes:
        return fact
    why = too_large(full_bytes, limit_bytes)
    return next((one for one in _reduced(fact, why) if size_bytes(one) <= most_bytes), None)


def too_large(full_bytes: int, limit_bytes: int) -> str:
    """Why something can't be used, as a text for people."""
    return (
        f"{TOO_LARGE}{full_bytes} bytes as a fact, {limit_bytes} at most (max_payload "
        "of NATS); make it smaller, or have max_payload raised"
    )


def _reduced(fact: Fact, why: str) -> Iterator[Fact]:
    """Reduced forms of the fact; each leaves out more than the one before."""
    match fact:
        case ClaimObserved(claim=claim):
            held = claim.allocation
            if held is not None:
                held = replace(held, config=())
            spec = ClaimSpec(unsupported=(why,))
            yield replace(fact, claim=replace(claim, spec=spec, allocation=held))
            if held is not None:
                devices = tuple(replace(device, terms=None) for device in held.devices)
                held = replace(held, devices=devices, selector=None)
                yield replace(fact, claim=replace(claim, spec=spec, allocation=held))
        case PodObserved(pod=pod):
            # No node matches this expression.
            terms = ((NodeExpression(why, "In"),),)
            needs = replace(pod.needs, node_terms=terms, tolerations=())
            yield replace(fact, pod=replace(pod, needs=needs))
        case SliceObserved(slice=slice_):
            yield replace(fact, slice=replace(slice_, devices=(), nodes=NOWHERE, counter_sets=()))
        case TemplateObserved():
            yield replace(fact, spec={}, unusable=why)
