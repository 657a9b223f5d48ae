"""The allocator's core without a bus: from a pod's fact to its decision, which is committed."""

import time
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from dray.api import names
from dray.api.claims import Allocation, Claim, ClaimSpec, DeviceRequest
from dray.api.devices import Capacity, Device, DeviceClass, RequestPolicy, ResourceSlice
from dray.api.pods import Node, Pod, PodClaim, Policy, Pool
from dray.api.quantities import quantity_of
from dray.messages.decisions import Decided, Opened
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
    Tick,
)
from dray.user_guide_form.selector import generated_selector
from dray_allocator.core.handle import handle
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    Append,
    Continue,
    Effect,
    Event,
    FactSeen,
    RecordSeen,
    Serve,
)
from dray_allocator.values.options import AllocatorOptions

POOL = "pool"
OPENED = Opened(domain=POOL, epoch=1, writer="c", facts_sequence=0, now_unix_s=0.0)
GPUS_PER_NODE = 8
MakeSlice = Callable[[str], ResourceSlice]
"""A node's slice."""


def measure(samples: int, nodes: int) -> list[float]:
    """Microseconds per decision of one GPU's fraction, on ``nodes`` nodes of eight A100."""
    fleet = Fleet(nodes)
    fleet.pod("warm-up")
    return [fleet.pod(f"pod-{number}") * 1e6 for number in range(samples)]


def pool_facts(mode: str = names.COMPACT_FIRST) -> Iterator[Fact]:
    """The facts of the pool, before its log is opened."""
    yield DeviceClassObserved(revision=1, device_class=DeviceClass(names.DEVICE_CLASS))
    policy = Policy("policy", "u", placement=mode, version=1)
    yield PolicyObserved(revision=1, policy=policy)
    yield PoolObserved(revision=1, pool=Pool(POOL, "u", template="policy"))
    yield DomainObserved(revision=1, domain=POOL, epoch=1)


def fleet_facts(nodes: int, make: MakeSlice | None = None) -> Iterator[Fact]:
    """The facts of ``nodes`` nodes with their cards; then the facts are complete."""
    for name in (f"node-{number}" for number in range(nodes)):
        yield SliceObserved(revision=1, slice=(make or slice_of)(name))
        made = Node(name, f"u-{name}", POOL, cpu_milli=64_000, memory_bytes=2**39, pods=1_000)
        yield NodeObserved(revision=1, node=made)
    yield Synced(revision=1, instance="c")
    yield Tick(revision=1, now_unix_s=1.0)


def slice_of(
    node: str, generation: int = 1, phase: str = "Running", vram: str = "40Gi"
) -> ResourceSlice:
    """A node's slice of eight A100."""
    cards = tuple(_card(f"{node}-gpu-{index}", phase, vram) for index in range(GPUS_PER_NODE))
    return ResourceSlice(
        f"slice-{node}", f"u-{node}", names.DRIVER, node, generation, 1, node, cards
    )


def pod_facts(
    uid: str, traceparent: str = "", spec: ClaimSpec | None = None
) -> tuple[ClaimObserved, PodObserved]:
    """The facts of a pod that requests a fraction of a card, and of its claim."""
    claim = Claim(f"claim-{uid}", "ns", f"{uid}-gpu", 1, POOL, spec or SPEC, uid, uid)
    reference = PodClaim(names.CLAIM_REFERENCE, claim.name, "template")
    pod = Pod(
        uid,
        "ns",
        uid,
        1,
        POOL,
        names.DRAY_SCHEDULER,
        claims=(reference,),
        traceparent=traceparent,
    )
    return ClaimObserved(revision=1, claim=claim), PodObserved(revision=1, pod=pod)


class Fleet:
    """A replica that serves a pool of ``nodes`` nodes, in memory."""

    def __init__(
        self, nodes: int, make: MakeSlice | None = None, mode: str = names.COMPACT_FIRST
    ) -> None:
        self.state = AllocatorState(AllocatorOptions(writer="bench"))
        self.facts = 0
        self.records = 0
        for fact in pool_facts(mode):
            self.see(fact)
        self.record(OPENED)
        for fact in fleet_facts(nodes, make):
            self.see(fact)
        self.do(Serve(POOL, 1, self.records))

    def pod(self, uid: str) -> float:
        """Seconds from the pod's fact to its decision; then the decision is committed."""
        claim_fact, pod_fact = pod_facts(uid)
        claim = claim_fact.claim
        self.see(claim_fact)
        began = time.perf_counter()
        decided = self.see(pod_fact)
        took_s = time.perf_counter() - began
        self.see(ClaimObserved(revision=2, claim=replace(claim, allocation=allocation_in(decided))))
        return took_s

    def see(self, fact: Fact) -> list[Effect]:
        """Apply the next fact; returns its effects."""
        self.facts += 1
        return self.do(FactSeen(self.facts, fact))

    def do(self, event: Event) -> list[Effect]:
        """Apply an event; returns its effects. What it appended is read back afterwards."""
        effects = self.effects_of(event)
        self.read_back(effects)
        return effects

    def effects_of(self, event: Event) -> list[Effect]:
        """Apply an event, without reading anything back; returns its effects."""
        effects = handle(self.state, event)
        while self.state.unfinished:
            effects += handle(self.state, Continue())
        return effects

    def read_back(self, effects: list[Effect]) -> None:
        """Read what was appended as the next records of the log."""
        for effect in effects:
            if isinstance(effect, Append):
                self.record(effect.record)

    def record(self, record: object) -> None:
        """Apply the next record of the log."""
        self.records += 1
        handle(self.state, RecordSeen(POOL, 1, self.records, record))  # type: ignore[arg-type]


def allocation_in(effects: list[Effect]) -> Allocation:
    """The allocation of the one pod that was decided.

    Raises:
        StopIteration: no pod was decided.
    """
    return next(
        made.allocation
        for effect in effects
        if isinstance(effect, Append) and isinstance(effect.record, Decided)
        for made in effect.record.pods[0].claims
    )


SELECTOR = generated_selector("A100", POOL, quantity_of(10), 2**30)
SPEC = ClaimSpec(
    (
        DeviceRequest(
            names.GPU_REQUEST,
            names.DEVICE_CLASS,
            selectors=(SELECTOR,),
            capacity={"virtual_tflops": "10", "virtual_vram": "1Gi"},
        ),
    )
)


def _card(name: str, phase: str, vram: str) -> Device:
    fixed = RequestPolicy(default="0", valid_values=("0",))
    return Device(
        name=name,
        attributes={
            "uuid": name,
            "model": "A100",
            "pool_name": POOL,
            "phase": phase,
            "used_by": "",
        },
        capacity={
            "tflops": Capacity("312", fixed),
            "vram": Capacity(vram, fixed),
            "virtual_tflops": Capacity("312", RequestPolicy(default="312", minimum="1")),
            "virtual_vram": Capacity(vram, RequestPolicy(default=vram, minimum="1")),
        },
        allow_multiple_allocations=True,
    )
