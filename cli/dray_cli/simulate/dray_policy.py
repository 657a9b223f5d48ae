"""dray's policies: the allocator's ``choose`` over its node table, with the facts of a trace.

Only the service's code decides. A card is a device with a capacity of 1000 thousandths that several
pods may share. Pods without cards are placed by the same scores, although kube-scheduler binds them
in a real cluster.
"""

from collections.abc import Iterator
from typing import Final

from dray.api import names
from dray.api.claims import Claim, ClaimSpec, DeviceRequest
from dray.api.devices import Capacity, Device, DeviceClass, RequestPolicy, ResourceSlice
from dray.api.pods import Node, Pod, PodClaim, PodNeeds, Policy, Pool
from dray.messages.facts import (
    ClaimObserved,
    DeviceClassObserved,
    DomainObserved,
    Fact,
    NodeObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    SliceObserved,
    Synced,
)
from dray_allocator.core.handle import handle
from dray_allocator.cycle import records
from dray_allocator.cycle.records import decision_of
from dray_allocator.placement.fast_path.table_choice import choose
from dray_allocator.placement.learned_policy import is_due, observe, relearn
from dray_allocator.placement.pod_request import PodRequest, wanted
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen
from dray_allocator.values.options import AllocatorOptions
from dray_cli.simulate.trace import CARD, ClusterTrace, TraceNode, TracePod

MODES: Final = {
    "fragmentation-aware": names.FRAGMENTATION_AWARE,
    "compact-first": names.COMPACT_FIRST,
    "low-load-first": names.LOW_LOAD_FIRST,
}
_POOL: Final = "openb"
_SHARE: Final = "share"
_MANY_PODS: Final = 100_000
_CARD_CAPACITY: Final = Capacity(str(CARD), RequestPolicy(default=str(CARD), minimum="1"))


class DrayPolicy:
    """An allocator's state, which observes a trace's nodes and pods."""

    def __init__(self, policy: str, trace: ClusterTrace, seed: int, ties: str) -> None:
        self._state = AllocatorState(AllocatorOptions(writer="simulate"))
        self._facts = self._pods = 0
        for fact in _cluster(MODES[policy], trace, f"{ties} {seed}"):
            self._apply(fact)
        self._domain: SchedulingDomain = self._state.domains[_POOL]

    def place(self, pod: TracePod) -> bool:
        """Observe the pod and decide; what was decided counts at once, as in the service."""
        state, domain = self._state, self._domain
        want = self._wanted(pod)
        if want.pattern.placement.is_aware:
            observe(domain, want)
            if is_due(state, domain):
                relearn(state, domain)
        choice = choose(state, domain, want)
        if choice is None:
            return False
        decision = decision_of(domain, want, choice)
        record = records.decided(state, domain, (decision,))
        domain.unwritten = None
        state.requeue(domain.current.fold(domain.current.sequence + 1, record), domain)
        return True

    def _wanted(self, pod: TracePod) -> PodRequest:
        self._pods += 1
        uid = f"pod-{self._pods}"
        claims: tuple[PodClaim, ...] = ()
        if pod.cards:
            claim = Claim(f"claim-{uid}", "ns", uid, 1, _POOL, _spec(pod), uid, uid)
            self._apply(ClaimObserved(revision=1, claim=claim))
            claims = (PodClaim(names.CLAIM_REFERENCE, uid, "template"),)
        needs = PodNeeds(cpu_milli=pod.cpu_milli, memory_bytes=pod.memory_mib << 20)
        made = Pod(uid, "ns", uid, 1, _POOL, names.DRAY_SCHEDULER, claims=claims, needs=needs)
        self._apply(PodObserved(revision=1, pod=made))
        want = wanted(self._state, _POOL, made)
        if not isinstance(want, PodRequest):
            raise TypeError(f"the allocator refuses {pod}: {want}")
        return want

    def _apply(self, fact: Fact) -> None:
        self._facts += 1
        handle(self._state, FactSeen(self._facts, fact))


def _cluster(mode: str, trace: ClusterTrace, salt: str) -> Iterator[Fact]:
    yield DeviceClassObserved(revision=1, device_class=DeviceClass(names.DEVICE_CLASS))
    policy = Policy("policy", "u", placement=mode, version=1)
    yield PolicyObserved(revision=1, policy=policy)
    yield PoolObserved(revision=1, pool=Pool(_POOL, "u", template="policy"))
    yield DomainObserved(revision=1, domain=_POOL, epoch=1)
    for node in trace.nodes:
        yield SliceObserved(revision=1, slice=_slice(node))
        yield NodeObserved(revision=1, node=_node(node, salt))
    yield Synced(revision=1, instance="simulate")


def _node(node: TraceNode, salt: str) -> Node:
    """Ties are broken by the uid, which contains ``salt``: another seed gives another order."""
    return Node(
        node.name,
        f"{salt} {node.name}",
        _POOL,
        cpu_milli=node.cpu_milli,
        memory_bytes=node.memory_mib << 20,
        pods=_MANY_PODS,
    )


def _slice(node: TraceNode) -> ResourceSlice:
    cards = tuple(
        Device(
            f"{node.name}-{index}",
            attributes={"model": node.model},
            capacity={_SHARE: _CARD_CAPACITY},
            allow_multiple_allocations=True,
        )
        for index in range(node.cards)
    )
    name = f"slice-{node.name}"
    return ResourceSlice(name, f"u-{name}", names.DRIVER, node.name, 1, 1, node.name, cards)


def _spec(pod: TracePod) -> ClaimSpec:
    request = DeviceRequest(
        names.GPU_REQUEST,
        names.DEVICE_CLASS,
        selectors=_selectors(pod),
        count=pod.cards,
        capacity={_SHARE: str(pod.milli)},
    )
    return ClaimSpec((request,))


def _selectors(pod: TracePod) -> tuple[str, ...]:
    attribute = f'device.attributes["{names.DRIVER}"].model'
    named = " || ".join(f'{attribute} == "{model}"' for model in pod.models)
    return (named,) if named else ()
