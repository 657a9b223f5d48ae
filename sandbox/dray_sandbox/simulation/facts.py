"""Whether the bus says what Kubernetes holds, once it is quiet."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from dray.api.claims import Claim
from dray.bus.memory import MemoryBus
from dray.bus.topology import FACTS_STREAM
from dray.kube.convert import claim_from, pod_from, slice_from
from dray.kube.memory_store import MemoryStore
from dray.kube.ports import CLAIMS, NODES, PODS, SLICES
from dray.messages.base import decode, subject_prefix
from dray.messages.facts import (
    ClaimObserved,
    Fact,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    SliceObserved,
)
from dray_sandbox.simulation.refusals import LastingRefusal

_COMPARED = (ClaimObserved, PodObserved, SliceObserved, NodeObserved, InventoryObserved)

_HOLDER = "a possible holder"


def stale_facts(
    bus: MemoryBus, store: MemoryStore, refusals: Sequence[LastingRefusal] = ()
) -> Iterator[str]:
    """Facts that are not what Kubernetes' objects say, or are of objects that are gone; but for
    those that can't be published, and those of objects that nobody can read."""
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
        if kind is None or any(one.is_of_fact(message) for one in refusals):
            continue
        fact: Fact = decode(message, kind)
        if isinstance(fact, SliceObserved) and any(one.hides_claims for one in refusals):
            fact = _as_offered(fact)
        if not fact.deleted and not any(one.is_read(*_object_of(fact)) for one in refusals):
            yield from _compared(fact, claims, pods, slices, nodes)


def _as_offered(fact: SliceObserved) -> SliceObserved:
    """Also the devices that a claim may hold which nobody can read: these are kept from others."""
    devices = (
        replace(one, unsupported=tuple(why for why in one.unsupported if _HOLDER not in why))
        for one in fact.slice.devices
    )
    return replace(fact, slice=replace(fact.slice, devices=tuple(devices)))


def _object_of(fact: Fact) -> tuple[str, str]:
    """Plural and name of the object that a fact is of; empty: of no one."""
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
            yield f"the facts say of claim {claim.name} what {_gone(claims.get(claim.uid))}"
        case PodObserved(pod=pod) if pods.get(pod.uid) != pod:
            yield f"the facts say of pod {pod.name} what {_gone(pods.get(pod.uid))}"
        case SliceObserved(slice=observed) if slices.get(observed.name) != observed:
            yield f"the facts say of slice {observed.name} what {_gone(slices.get(observed.name))}"
        case NodeObserved(node=node) if node.name not in nodes:
            yield f"the facts know node {node.name}, which is gone"
        case InventoryObserved(node=name) if name not in nodes:
            yield f"the facts know the health of node {name}, which is gone"


def _with_void(claim: Claim | None, fact: ClaimObserved) -> Claim | None:
    """The claim with those of its attempts void that count as void although Kubernetes takes no
    write that says so."""
    if claim is None or fact.given_up is None:
        return claim
    return replace(claim, void=max(claim.void, fact.given_up.void))


def _gone(known: object | None) -> str:
    return "it was, but it is gone" if known is None else "it is no more"
