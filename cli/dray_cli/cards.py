"""Why a pool's devices do not fit a pod, from Kubernetes objects; for any allocator. Pure.

The answer is the explanation of dray's allocator. It is only about cards: the scheduler that
evaluates a node reports what else the node lacks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from dray.api.names import DRIVER, OWNER_DRAY
from dray.api.pods import Node
from dray.kube.convert import claim_from, pod_from, pool_from
from dray.kube.ports import CLASSES, NODES, SLICES, Object
from dray.messages.facts import (
    ClaimObserved,
    DeviceClassObserved,
    DomainObserved,
    Fact,
    NodeObserved,
    PodObserved,
    PoolObserved,
    SliceObserved,
    Synced,
)
from dray.reasons import Reason
from dray_allocator.core.handle import handle, reasons
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen
from dray_claim_controller.cache.pool_selectors import selects
from dray_claim_controller.cache.resources import read

_PLENTY = 1 << 60


@dataclass(frozen=True, slots=True)
class CardOverview:
    """The objects that the answer depends on."""

    classes: Sequence[Object]
    nodes: Sequence[Object]
    slices: Sequence[Object]
    claims: Sequence[Object]


def reasons_on_cards(pod: Object, pool: Object, cluster: CardOverview) -> tuple[Reason, ...]:
    """Why no cards of the pool suffice for the pod's claims; empty if some do."""
    state = AllocatorState()
    for sequence, fact in enumerate(_facts(pod, pool, cluster), 1):
        handle(state, FactSeen(sequence, fact, more=True))
    return reasons(state, pod["metadata"]["uid"])


def _facts(pod: Object, pool: Object, cluster: CardOverview) -> Iterable[Fact]:
    """Facts made from the objects. Unreadable objects are left out, as in dray's own decisions."""
    observed = replace(pool_from(pool), owner=OWNER_DRAY)
    slices = [slice_ for obj in cluster.slices if (slice_ := read(SLICES, obj)[0]) is not None]
    pool_of_node = {
        slice_.node: str(device.attributes.get("pool_name", ""))
        for slice_ in slices
        for device in slice_.devices
        if slice_.driver == DRIVER and slice_.node
    }
    yield DomainObserved(revision=1, domain=observed.name, epoch=1)
    yield PoolObserved(revision=1, pool=observed)
    for obj in cluster.classes:
        if (known := read(CLASSES, obj)[0]) is not None:
            yield DeviceClassObserved(revision=1, device_class=known)
    for obj in cluster.nodes:
        if (node := read(NODES, obj)[0]) is None:
            continue
        assigned = pool_of_node.get(node.name, "")
        if assigned == observed.name:
            yield NodeObserved(revision=1, node=_roomy(node, observed.name))
        elif assigned and selects(observed, node.labels):
            elsewhere = replace(node, assigned_pool=assigned)
            yield NodeObserved(revision=1, node=elsewhere, also_selected_by=(observed.name,))
    for slice_ in slices:
        yield SliceObserved(revision=1, slice=slice_)
    for obj in cluster.claims:
        yield ClaimObserved(revision=1, claim=claim_from(obj))
    seen = pod_from(pod)
    needs = replace(seen.needs, resources={}, ports=())
    asking = replace(seen, pool=observed.name, other_gates=False, needs=needs)
    yield PodObserved(revision=1, pod=asking)
    yield Synced(revision=1, instance="")


def _roomy(node: Node, pool: str) -> Node:
    return replace(
        node,
        pool=pool,
        owner=OWNER_DRAY,
        cpu_milli=_PLENTY,
        memory_bytes=_PLENTY,
        pods=_PLENTY,
        unschedulable=False,
        ready=True,
        taints=(),
    )
