"""Checks of the bus' streams: facts match Kubernetes' objects, logs have one writer at a time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from dray.api.claims import Claim
from dray.bus.memory import MemoryBus
from dray.bus.topology import FACTS_STREAM
from dray.kube.convert import claim_from, pod_from, slice_from
from dray.kube.memory_store import MemoryStore
from dray.kube.ports import CLAIMS, NODES, PODS, SLICES
from dray.messages.base import decode, subject_prefix
from dray.messages.decisions import Checkpoint, Decided, decode_record, log_stream
from dray.messages.facts import (
    ClaimObserved,
    Fact,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    SliceObserved,
)
from dray_allocator.state.domain import LogFold
from dray_allocator.state.state import AllocatorState
from tools.simulation.refusals import LastingRefusal

_COMPARED = (ClaimObserved, PodObserved, SliceObserved, NodeObserved, InventoryObserved)

_HOLDER = "a possible holder"


def stale_facts(
    bus: MemoryBus, store: MemoryStore, refusals: Sequence[LastingRefusal] = ()
) -> Iterator[str]:
    """Facts that differ from Kubernetes' objects or whose objects were deleted, except facts that
    can't be published and facts of unreadable objects."""
    stream = bus.server.streams.get(FACTS_STREAM)
    if stream is None:
        yield "there are no facts"
        return
    kinds = {subject_prefix(kind): kind for kind in _COMPARED}
    claims = {one.uid: one for one in map(claim_from, store.of(CLAIMS).values())}
    pods = {one.uid: one for one in map(pod_from, store.of(PODS).values())}
    slices = {one.name: one for one in map(slice_from, store.of(SLICES).values())}
    nodes = {name for _, name in store.of(NODES)}
    for message in stream.after(1, ()):
        kind = kinds.get(".".join(message.subject.split(".")[:4]))
        if kind is None or any(one.concerns_fact(message) for one in refusals):
            continue
        fact: Fact = decode(message, kind)
        if isinstance(fact, SliceObserved) and any(one.hides_claims for one in refusals):
            fact = _without_possible_holders(fact)
        if not fact.deleted and not any(one.is_read(*_object_of(fact)) for one in refusals):
            yield from _compared(fact, claims, pods, slices, nodes)


def _without_possible_holders(fact: SliceObserved) -> SliceObserved:
    """The slice without marks of devices that an unreadable claim may hold."""
    devices = (
        replace(one, unsupported=tuple(why for why in one.unsupported if _HOLDER not in why))
        for one in fact.slice.devices
    )
    return replace(fact, slice=replace(fact.slice, devices=tuple(devices)))


def _object_of(fact: Fact) -> tuple[str, str]:
    """Plural and name of a fact's object; empty if it has none."""
    match fact:
        case ClaimObserved(claim=claim):
            return CLAIMS.plural, claim.name
        case PodObserved(pod=pod):
            return PODS.plural, pod.name
        case SliceObserved(slice=observed):
            return SLICES.plural, observed.name
    return "", ""


def _compared(
    fact: Fact,
    claims: Mapping[str, Claim],
    pods: Mapping[str, object],
    slices: Mapping[str, object],
    nodes: Iterable[str],
) -> Iterator[str]:
    match fact:
        case ClaimObserved(claim=claim) if _with_void(claims.get(claim.uid), fact) != claim:
            yield f"the fact of claim {claim.name} is {_state(claims.get(claim.uid))}"
        case PodObserved(pod=pod) if pods.get(pod.uid) != pod:
            yield f"the fact of pod {pod.name} is {_state(pods.get(pod.uid))}"
        case SliceObserved(slice=observed) if slices.get(observed.name) != observed:
            yield f"the fact of slice {observed.name} is {_state(slices.get(observed.name))}"
        case NodeObserved(node=node) if node.name not in nodes:
            yield f"there is a fact of node {node.name}, which was deleted"
        case InventoryObserved(node=name) if name not in nodes:
            yield f"there is an inventory of node {name}, which was deleted"


def _with_void(claim: Claim | None, fact: ClaimObserved) -> Claim | None:
    """The claim with the attempts void that dray gave up, although the claim can't be written."""
    if claim is None or fact.given_up is None:
        return claim
    return replace(claim, void=max(claim.void, fact.given_up.void))


def _state(known: object | None) -> str:
    return "left although the object was deleted" if known is None else "outdated"


def repeated_attempts(bus: MemoryBus) -> Iterator[str]:
    """Decisions of a claim that do not raise its attempt: their writer had not read the log."""
    for name, stream in bus.server.streams.items():
        if not name.startswith("DRAY_DECISIONS"):
            continue
        highest: dict[str, int] = {}
        for message in stream.after(1, ()):
            record = decode_record(message.payload)
            if isinstance(record, Checkpoint):
                for one in record.reserved:
                    highest[one.uid] = max(one.attempt, highest.get(one.uid, 0))
            for pod in record.pods if isinstance(record, Decided) else ():
                for claim in pod.claims:
                    if claim.attempt <= highest.get(claim.uid, 0):
                        yield f"{name} has attempt {claim.attempt} of {claim.name} twice"
                    highest[claim.uid] = claim.attempt


def other_readings(bus: MemoryBus, name: str, state: AllocatorState) -> Iterator[str]:
    """Logs for which a replica's state differs from that of a reader that begins now."""
    for domain in state.domains.values():
        stream = bus.server.streams.get(log_stream(domain.name, domain.epoch))
        if stream is None:
            continue
        fresh = LogFold()
        for message in stream.after(1, ()):
            fresh.fold(message.sequence, decode_record(message.payload))
        if fresh != domain.confirmed:
            yield f"{name} has read {stream.spec.name} otherwise than a new reader"
