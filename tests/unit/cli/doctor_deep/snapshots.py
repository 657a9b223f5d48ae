"""What one look of the doctor shows: claims, facts, a decision log, and a replica's state."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from dray.api import names
from dray.api.claims import AllocatedDevice, Allocation, Claim, ClaimSpec
from dray.api.devices import Capacity, Device, DeviceId, RequestPolicy, ResourceSlice
from dray.api.pods import Node, Pool
from dray.messages.decisions import (
    AnyRecord,
    ClaimDecision,
    Decided,
    Opened,
    PodDecision,
    Release,
    Released,
)
from dray.messages.facts import (
    ClaimObserved,
    DomainObserved,
    Fact,
    NodeObserved,
    PoolObserved,
    SliceObserved,
    Synced,
    Tick,
)
from dray_allocator.core.handle import handle
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen, RecordSeen
from dray_allocator.values.options import AllocatorOptions
from dray_cli.doctor.deep.compare import differences
from dray_cli.doctor.deep.differences import Difference
from dray_cli.doctor.deep.snapshot import ClaimStatus, ClusterSnapshot, LogSummary

POOL, NODE, UID = "fast", "node-1", "claim-1"
START_UNIX_S = 1_000_000.0


def allocation(*cards: str, vram: str = "16Gi") -> Allocation:
    """Shares of cards of the node."""
    return Allocation(
        tuple(
            AllocatedDevice("gpu", DeviceId(names.DRIVER, NODE, card), None, {"vram": vram})
            for card in cards
        ),
        NODE,
    )


def claim(held: Allocation | None, uid: str = UID, **changes: Any) -> Claim:
    """A claim of the pool, as Kubernetes has it and as facts show it."""
    made = Claim(uid, "default", f"of-{uid}", 7, POOL, ClaimSpec(), created_unix_s=START_UNIX_S)
    return replace(made, allocation=held, created_unix_s=START_UNIX_S + 600, **changes)


def decided(held: Allocation, attempt: int = 1, uid: str = UID, name: str = "") -> Decided:
    """A pod's one claim gets devices."""
    made = ClaimDecision(
        uid=uid,
        namespace="default",
        name=name or f"of-{uid}",
        attempt=attempt,
        allocation=held,
    )
    about = {"pod_uid": f"pod-{uid}", "namespace": "default", "name": "p", "node": NODE}
    pod = PodDecision(**about, binder="dray", claims=(made,))
    return Decided(**head(), policy_version=1, pods=(pod,))


def released(why: str, attempt: int = 1) -> Released:
    """The claim's reservation ends."""
    return Released(**head(), releases=(Release(claim_uid=UID, attempt=attempt, why=why),))


def head() -> dict[str, Any]:
    return {
        "domain": POOL,
        "epoch": 1,
        "writer": "one",
        "facts_sequence": 1,
        "now_unix_s": START_UNIX_S + 700,
    }


OPENED = Opened(domain=POOL, epoch=1, writer="c", facts_sequence=0, now_unix_s=START_UNIX_S)
CARD = Device(
    "gpu-0", capacity={"vram": Capacity("40Gi", RequestPolicy())}, allow_multiple_allocations=True
)
SLICE = ResourceSlice(
    "slice-1", "s", names.DRIVER, NODE, 1, 1, NODE, (CARD, replace(CARD, name="gpu-1"))
)


def facts_of(
    claims: Sequence[Claim] = (), *, later_s: float = 0.0, node: dict[str, Any] | None = None
) -> list[Fact]:
    """One node with two cards, the claims, and the time."""
    return [
        PoolObserved(revision=1, pool=Pool(POOL, "u")),
        SliceObserved(revision=1, slice=SLICE),
        NodeObserved(revision=1, node=Node(NODE, "n", POOL), **(node or {})),
        DomainObserved(revision=1, domain=POOL, epoch=1),
        *(ClaimObserved(revision=7, claim=one) for one in claims),
        Synced(revision=7, instance="c"),
        Tick(revision=1, now_unix_s=START_UNIX_S + 700 + later_s),
    ]


def state_of(facts: Sequence[Fact], records: Sequence[AnyRecord]) -> AllocatorState:
    """Folded, and nothing decided."""
    state = AllocatorState(AllocatorOptions(writer="replica-1"))
    for sequence, fact in enumerate(facts, 1):
        handle(state, FactSeen(sequence, fact, more=True))
    for sequence, record in enumerate(records, 1):
        handle(state, RecordSeen(POOL, 1, sequence, record, more=True))
    return state


def snapshot_of(
    written: Sequence[Claim],
    records: Sequence[AnyRecord] = (),
    facts: Sequence[Claim] | None = None,
    **about: Any,
) -> ClusterSnapshot:
    """One look; facts say what is written, unless they are given."""
    state = state_of(facts_of(written if facts is None else facts, **about), [OPENED, *records])
    return ClusterSnapshot(
        state,
        logs={POOL: LogSummary(True, START_UNIX_S, {UID: START_UNIX_S + 701})},
        fact_slices={SLICE.name: SLICE},
        claims={one.uid: ClaimStatus(one, START_UNIX_S + 702) for one in written},
        slices={SLICE.name: SLICE},
    )


def found(snapshot: ClusterSnapshot, floor: int = 0) -> dict[str, Difference]:
    """By kind; each is about another thing."""
    reported = differences(snapshot, floor=floor)
    assert len({one.kind for one in reported}) == len(reported)
    return {one.kind: one for one in reported}


ONE, OTHER = allocation("gpu-0"), allocation("gpu-1")
