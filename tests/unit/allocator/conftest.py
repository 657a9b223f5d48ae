"""A small world for the allocator's core: facts by hand, a log as the bus would keep it."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from dray.api import names
from dray.api.claims import Claim, ClaimSpec, DeviceRequest
from dray.api.devices import (
    Capacity,
    Device,
    DeviceClass,
    RequestPolicy,
    ResourceSlice,
    Taint,
)
from dray.api.pods import Node, Pod, PodClaim, Policy, Pool
from dray.messages.decisions import (
    AnyRecord,
    Decided,
    Opened,
    PodDecision,
    Released,
    Waiting,
    decode_record,
    encode_record,
)
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
from dray_allocator.core.handle import handle
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    Append,
    Continue,
    DoublyAllocated,
    Effect,
    Event,
    FactSeen,
    RecordSeen,
    Send,
    Serve,
)
from dray_allocator.values.options import AllocatorOptions

OWNER = Taint(names.OWNER_TAINT, names.OWNER_DRAY, "NoSchedule")
START_UNIX_S = 1_000_000.0


def card(
    name: str, *, model: str = "A100", tflops: str = "312", vram: str = "40Gi", ratio: int = 1
) -> Device:
    """A card as the node-agent publishes it."""
    fixed = RequestPolicy(default="0", valid_values=("0",))
    return Device(
        name=name,
        attributes={"uuid": name, "model": model, "pool_name": "pool"},
        capacity={
            "tflops": Capacity(tflops, fixed),
            "vram": Capacity(vram, fixed),
            "virtual_tflops": Capacity(tflops, RequestPolicy(default=tflops, minimum="1")),
            "virtual_vram": Capacity(vram, RequestPolicy(default=vram, minimum="1")),
        },
        allow_multiple_allocations=True,
        taints=(OWNER,),
    )


def slice_of(node: str, devices: Iterable[Device], generation: int = 1) -> ResourceSlice:
    """The one slice of a node."""
    return ResourceSlice(
        f"slice-{node}", f"uid-{node}", names.DRIVER, node, generation, 1, node, tuple(devices)
    )


def node(name: str, pool: str = "pool", **changes: object) -> Node:
    """A roomy node."""
    made = Node(name, f"uid-{name}", pool, cpu_milli=64_000, memory_bytes=2**38, pods=110)
    return replace(made, **changes)  # type: ignore[arg-type]


def fraction(tflops: str = "100", vram: str = "16Gi", count: int = 1, **more: object) -> ClaimSpec:
    """What a derived template asks for."""
    request = DeviceRequest(
        names.GPU_REQUEST,
        names.DEVICE_CLASS,
        capacity={"virtual_tflops": tflops, "virtual_vram": vram},
        count=count,
    )
    return ClaimSpec((replace(request, **more),))  # type: ignore[arg-type]


def claim_of(pod_uid: str, spec: ClaimSpec, pool: str = "pool", **changes: object) -> Claim:
    """The claim made from the pod's template."""
    made = Claim(f"claim-{pod_uid}", "ns", f"{pod_uid}-gpu", 1, pool, spec, pod_uid, pod_uid)
    return replace(made, **changes)  # type: ignore[arg-type]


def pod(uid: str, pool: str = "pool", **changes: object) -> Pod:
    """A pod of a dedicated pool that refers to its claim."""
    reference = PodClaim(names.CLAIM_REFERENCE, f"{uid}-gpu", "template")
    made = Pod(uid, "ns", uid, 1, pool, names.DRAY_SCHEDULER, claims=(reference,))
    return replace(made, **changes)  # type: ignore[arg-type]


class World:
    """One replica, its facts stream and its domains' logs."""

    a_card = staticmethod(card)
    a_slice = staticmethod(slice_of)
    a_node = staticmethod(node)
    a_pod = staticmethod(pod)
    a_claim = staticmethod(claim_of)
    ask = staticmethod(fraction)

    def __init__(
        self, options: AllocatorOptions | None = None, pools: tuple[str, ...] = ("pool",)
    ) -> None:
        self.state = AllocatorState(options or AllocatorOptions(writer="one"))
        self.facts: list[Fact] = []
        self.logs: dict[str, list[AnyRecord]] = {pool: [] for pool in pools}
        self.effects: list[Effect] = []
        self.now_unix_s = START_UNIX_S
        self.revision = 0
        self.ticks = 0

    def open(self, mode: str = "CompactFirst", **placement: object) -> "World":
        """Configuration, opened logs, complete facts, and this replica serves."""
        self.see(DeviceClassObserved(revision=1, device_class=DeviceClass(names.DEVICE_CLASS)))
        policy = Policy("policy", "u", placement=mode, version=3, **placement)  # type: ignore[arg-type]
        self.see(PolicyObserved(revision=1, policy=policy))
        for pool in self.logs:
            self.see(PoolObserved(revision=1, pool=Pool(pool, "u", template="policy")))
            self.see(DomainObserved(revision=1, domain=pool, epoch=1))
            self.append(Opened(domain=pool, epoch=1, writer="c", facts_sequence=0, now_unix_s=0.0))
        self.see(Synced(revision=1, instance="c"))
        self.tick(0)
        self.serve()
        return self

    def serve(self) -> None:
        """Take the leases."""
        for pool, log in self.logs.items():
            self.do(Serve(pool, 1, len(log)))

    def do(self, event: Event) -> list[Effect]:
        """Hand an event in; what is appended is stored and read back."""
        effects = handle(self.state, event)
        while self.state.unfinished:
            effects += handle(self.state, Continue())
        for effect in effects:
            if isinstance(effect, Append):
                log = self.logs[effect.domain]
                assert effect.expected_last == len(log)
                log.append(decode_record(encode_record(effect.record)))
                effects += handle(
                    self.state, RecordSeen(effect.domain, effect.epoch, len(log), log[-1])
                )
        self.effects += effects
        return effects

    def append(self, record: AnyRecord) -> list[Effect]:
        """Somebody else appends."""
        log = self.logs[record.domain]
        log.append(record)
        return self.do(RecordSeen(record.domain, record.epoch, len(log), record))

    def see(self, fact: Fact) -> list[Effect]:
        """The next fact."""
        self.facts.append(fact)
        return self.do(FactSeen(len(self.facts), fact))

    def tick(self, by_s: float = 1.0, *, most_step_s: float = 60.0) -> list[Effect]:
        """Let time pass, as far as one tick may."""
        self.now_unix_s += by_s
        self.ticks += 1
        tick = Tick(revision=self.ticks, now_unix_s=self.now_unix_s, most_step_s=most_step_s)
        return self.see(tick)

    def next(self) -> int:
        """The next resourceVersion."""
        self.revision += 1
        return self.revision

    def nodes(self, *nodes: Node, cards: int = 1, **about: str) -> "World":
        """Nodes with cards of their own."""
        for one in nodes:
            devices = [card(f"{one.name}-gpu{i}", **about) for i in range(cards)]  # type: ignore[arg-type]
            self.see(SliceObserved(revision=self.next(), slice=slice_of(one.name, devices)))
            self.node(one)
        return self

    def full(self) -> "World":
        """Two pods fill the card, a third waits."""
        self.nodes(node("n1"))
        for uid in ("a", "b", "c"):
            self.submit(pod(uid))
        return self

    def node(self, one: Node, counted: tuple[str, ...] = (), deleted: bool = False) -> list[Effect]:
        """A node as observed now."""
        return self.see(
            NodeObserved(revision=self.next(), node=one, counted_pods=counted, deleted=deleted)
        )

    def submit(self, one: Pod, spec: ClaimSpec | None = None) -> list[Effect]:
        """A pod and its claim."""
        self.claim(claim_of(one.uid, spec or fraction(), one.pool))
        return self.see(PodObserved(revision=self.next(), pod=one))

    def claim(self, one: Claim, deleted: bool = False) -> list[Effect]:
        """A claim as observed now."""
        return self.see(ClaimObserved(revision=self.next(), claim=one, deleted=deleted))

    def commit(self, decision: PodDecision) -> None:
        """The executor writes the decision's allocations."""
        for made in decision.claims:
            known = self.state.facts.claims[made.uid]
            self.claim(replace(known, allocation=made.allocation, decision=made.attempt))

    def clear(self, uid: str, **changes: object) -> list[Effect]:
        """A claim without allocation, otherwise changed."""
        known = self.state.facts.claims[uid]
        return self.claim(replace(known, allocation=None, **changes))  # type: ignore[arg-type]

    def decisions(self) -> dict[str, PodDecision]:
        """The latest decision of every pod."""
        return {
            one.pod_uid: one
            for log in self.logs.values()
            for record in log
            if isinstance(record, Decided)
            for one in record.pods
        }

    def waits(self, uid: str) -> list[Waiting]:
        """The recorded reasons of a pod that waits."""
        return [r for log in self.logs.values() for r in log if _waits(r, uid)]  # type: ignore[misc]

    def released(self) -> list[tuple[str, str, str]]:
        """Claim, why and excluded node of every release."""
        return [
            (one.claim_uid, one.why, one.exclude_node)
            for log in self.logs.values()
            for record in log
            if isinstance(record, Released)
            for one in record.releases
        ]

    def sent(self) -> list[Send]:
        """Commands so far."""
        return [effect for effect in self.effects if isinstance(effect, Send)]

    def oversold(self) -> list[DoublyAllocated]:
        """Alarms so far."""
        return [effect for effect in self.effects if isinstance(effect, DoublyAllocated)]


def _waits(record: AnyRecord, uid: str) -> bool:
    return isinstance(record, Waiting) and uid in [one.pod_uid for one in record.by_pod()]


@pytest.fixture
def world() -> World:
    """An open domain without nodes."""
    return World().open()


@pytest.fixture(scope="session")
def make_world() -> type[World]:
    """Worlds with other options or pools."""
    return World
