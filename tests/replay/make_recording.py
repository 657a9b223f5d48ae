"""Makes the committed recording: two allocators' cores over a simulated bus, from one seed.

    python tests/replay/make_recording.py tests/replay/recordings/two-replicas.jsonl.gz

The bus is a facts stream that keeps the last fact per subject, and fenced decision logs. Both
replicas believe that they serve, read late, lose answers, crash and begin again; an executor
commits late or never and voids; pods, claims and nodes come, change and go; kube-scheduler
clears; the policy changes; a log is lost and opened again under the next epoch. The recording
begins in the middle of it.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import msgspec

from dray.bus.catching_up import CatchingUp
from dray.bus.topology import FACTS_STREAM
from dray.domain import names
from dray.domain.claims import Claim, ClaimSpec, DeviceRequest, last_attempt_before
from dray.domain.devices import Capacity, Device, DeviceClass, RequestPolicy, ResourceSlice, Taint
from dray.domain.pods import Node, Pod, PodClaim, PodNeeds, Policy, Pool
from dray.messages.base import encode
from dray.messages.commands import VoidClaim
from dray.messages.decisions import (
    AnyRecord,
    Decided,
    NodeLeft,
    Opened,
    decode_record,
    encode_record,
    log_stream,
)
from dray.messages.facts import (
    ClaimObserved,
    DeviceClassObserved,
    DomainObserved,
    Fact,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    SliceObserved,
    Synced,
    Tick,
)
from dray.recording.file import write_recording
from dray.recording.lines import FactLine, Header, Line, RecordLine, StreamLine, WholeLine
from dray_allocator.events import (
    Append,
    AppendFailed,
    Continue,
    Effect,
    Event,
    FactSeen,
    LogLost,
    Oversold,
    RecordSeen,
    Send,
    Serve,
)
from dray_allocator.handle import handle
from dray_allocator.rules import Rules
from dray_allocator.state import AllocatorState

POOLS = ("inference", "training")
NODES = ("node-0", "node-1", "node-2")
MODELS = ("A100", "H100", "A100")
MODES = ("CompactFirst", "LowLoadFirst")
START_UNIX_S = 1_700_000_000.0
SETTINGS = {"exclusion_s": 20.0, "checkpoint_interval_s": 120.0, "uncommitted_after_s": 30.0}
OWNER = Taint(names.OWNER_TAINT, names.OWNER_DRAY, "NoSchedule")


@dataclass(slots=True)
class Log:
    """A decision log; every append names the one it follows."""

    epoch: int
    records: list[AnyRecord] = field(default_factory=list)
    last: object = None


@dataclass(slots=True)
class Replica:
    """An allocator's core, how far it has read, and what it has on the way."""

    name: str
    state: AllocatorState
    catching: CatchingUp = field(default_factory=CatchingUp)
    records: dict[tuple[str, int], int] = field(default_factory=dict)
    outbox: list[tuple[Append, object, object]] = field(default_factory=list)
    last: dict[str, object] = field(default_factory=dict)


def replica(name: str) -> Replica:
    """A fresh process."""
    return Replica(name, AllocatorState(Rules(writer=name, **SETTINGS)))


def card(node: str, index: int, model: str) -> Device:
    """A card as the node-agent publishes it."""
    fixed = RequestPolicy(default="0", valid_values=("0",))
    vram = "40Gi" if model == "A100" else "80Gi"
    return Device(
        f"gpu-{node}-{index}",
        attributes={"uuid": f"gpu-{node}-{index}", "model": model},
        capacity={
            "tflops": Capacity("312", fixed),
            "vram": Capacity(vram, fixed),
            "virtual_tflops": Capacity("312", RequestPolicy(default="312", minimum="1")),
            "virtual_vram": Capacity(vram, RequestPolicy(default=vram, minimum="1")),
        },
        allow_multiple_allocations=True,
        taints=(OWNER,),
    )


class Simulation:
    """The cluster, the bus and two replicas; every move is drawn from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_unix_s = START_UNIX_S
        self.revision = 0
        self.count = 0
        self.facts: list[Fact] = []
        self.stored_unix_s: list[float] = []
        self.replaced: dict[int, int] = {}
        """Sequence of a fact, and of the one that replaced it."""
        self.newest: dict[str, int] = {}
        self.logs: dict[str, Log] = {}
        self.lines: list[Line] = []
        self.recording = False
        self.claims: dict[str, Claim] = {}
        self.pods: dict[str, Pod] = {}
        self.membership = dict(zip(NODES, (POOLS[0], POOLS[0], POOLS[1]), strict=True))
        self.leaving: dict[str, tuple[str, str, int]] = {}
        self.counted: dict[str, list[Pod]] = {node: [] for node in NODES}
        self.executed: dict[tuple[str, int], int] = {}
        self.running: list[tuple[str, int]] = []
        self.allocations: dict[tuple[str, int], object] = {}
        self.commands: list[VoidClaim] = []
        self.happened: dict[str, int] = {}
        self.policy_version = 0
        self.replicas = [replica("allocator-0"), replica("allocator-1")]

    # The bus.

    def see(self, fact: Fact) -> None:
        """Publish a fact: it replaces the one before it of the same object."""
        self.facts.append(fact)
        self.stored_unix_s.append(self.now_unix_s)
        sequence = len(self.facts)
        subject = encode(fact, source="", now_unix_s=0.0).subject
        if subject in self.newest:
            self.replaced[self.newest[subject]] = sequence
        self.newest[subject] = sequence
        if self.recording:
            self.lines.append(self.fact_line(sequence))

    def fact_line(self, sequence: int) -> FactLine:
        message = encode(self.facts[sequence - 1], source="", now_unix_s=0.0)
        raw = msgspec.Raw(message.payload)
        stored = self.stored_unix_s[sequence - 1]
        return FactLine(sequence=sequence, subject=message.subject, time_unix_s=stored, payload=raw)

    def store(self, domain: str, record: AnyRecord) -> None:
        log = self.logs[domain]
        log.records.append(decode_record(encode_record(record)))
        if self.recording:
            self.lines.append(self.record_line(domain, len(log.records)))

    def record_line(self, domain: str, sequence: int) -> RecordLine:
        log = self.logs[domain]
        raw = msgspec.Raw(encode_record(log.records[sequence - 1]))
        return RecordLine(
            domain=domain,
            epoch=log.epoch,
            sequence=sequence,
            time_unix_s=self.now_unix_s,
            payload=raw,
        )

    def begin_recording(self) -> None:
        """What a recorder writes first: the facts that are left, and the logs so far."""
        self.recording = True
        streams = {log_stream(name, log.epoch): "" for name, log in self.logs.items()}
        self.lines.append(
            Header(
                dray="simulated",
                domains=tuple(self.logs),
                streams={FACTS_STREAM: "", **streams},
                settings=SETTINGS,
                recorded_unix_s=self.now_unix_s,
            )
        )
        left = [n for n in range(1, len(self.facts) + 1) if n not in self.replaced]
        self.lines += [self.fact_line(sequence) for sequence in left]
        self.lines.append(WholeLine(sequence=len(self.facts)))
        for name, log in self.logs.items():
            self.lines += [self.record_line(name, n + 1) for n in range(len(log.records))]

    # The cluster.

    def next(self) -> int:
        self.revision += 1
        return self.revision

    def note(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1

    def configure(self) -> None:
        """Classes, pools, nodes and opened logs."""
        made = DeviceClass(names.DEVICE_CLASS)
        self.see(DeviceClassObserved(revision=self.next(), device_class=made))
        self.change_policy()
        for name in POOLS:
            pool = Pool(name, f"uid-{name}", template="policy")
            self.see(PoolObserved(revision=self.next(), pool=pool))
            self.open(name, 1)
        for node, model in zip(NODES, MODELS, strict=True):
            cards = tuple(card(node, index, model) for index in range(2))
            made_of = ResourceSlice(
                f"slice-{node}", f"uid-{node}", names.DRIVER, node, 1, 1, node, cards
            )
            self.see(SliceObserved(revision=self.next(), slice=made_of))
            self.publish_node(node)
        self.see(Synced(revision=1, instance="claim-controller"))
        self.pass_time()

    def open(self, domain: str, epoch: int) -> None:
        """A new epoch's log, then its announcement."""
        self.logs[domain] = Log(epoch)
        if self.recording:
            self.lines.append(StreamLine(name=log_stream(domain, epoch), created=""))
        opened = Opened(
            domain=domain,
            epoch=epoch,
            writer="claim-controller",
            facts_sequence=len(self.facts),
            now_unix_s=self.now_unix_s,
        )
        self.store(domain, opened)
        self.see(DomainObserved(revision=epoch, domain=domain, epoch=epoch))

    def publish_node(self, node: str) -> None:
        leaving, _, since = self.leaving.get(node, ("", "", 0))
        counted = self.counted[node]
        made = Node(
            node,
            f"uid-{node}",
            self.membership[node],
            cpu_milli=8_000,
            memory_bytes=2**36,
            pods=40,
            used_cpu_milli=sum(pod.needs.cpu_milli for pod in counted),
            used_memory_bytes=sum(pod.needs.memory_bytes for pod in counted),
            used_pods=len(counted),
            leaving=leaving,
            leaving_since=since,
        )
        uids = tuple(pod.uid for pod in counted)
        self.see(NodeObserved(revision=self.next(), node=made, counted_pods=uids))

    def publish_claim(self, claim: Claim, deleted: bool = False) -> None:
        if deleted:
            del self.claims[claim.uid]
        else:
            self.claims[claim.uid] = claim
        self.see(ClaimObserved(revision=self.next(), claim=claim, deleted=deleted))

    def submit(self) -> None:
        """A pod and its claim; the claim's fact may come second."""
        self.count += 1
        random, uid, pool = self.random, f"pod-{self.count}", self.random.choice(POOLS)
        request = DeviceRequest(
            names.GPU_REQUEST,
            names.DEVICE_CLASS,
            selectors=random.choice(
                [(), (), (f'device.attributes["{names.DRIVER}"].model == "H100"',)]
            ),
            count=random.choice([1, 1, 1, 2]),
            capacity={
                "virtual_tflops": random.choice(["50", "100", "156"]),
                "virtual_vram": random.choice(["8Gi", "16Gi", "40Gi"]),
            },
        )
        claim = Claim(
            f"claim-{self.count}", "default", f"{uid}-gpu", 1, pool, ClaimSpec((request,)), uid, uid
        )
        pod = Pod(
            uid,
            "default",
            uid,
            1,
            pool,
            random.choice([names.DRAY_SCHEDULER, "default-scheduler"]),
            priority=random.randrange(3),
            needs=PodNeeds(cpu_milli=random.choice([500, 1000, 3000]), memory_bytes=2**30),
            claims=(PodClaim(names.CLAIM_REFERENCE, claim.name, "template"),),
            request_id=f"request-{self.count}",
            created_unix_s=self.now_unix_s,
        )
        self.pods[uid] = pod
        steps: list[Callable[[], None]] = [
            lambda: self.publish_claim(claim),
            lambda: self.see(PodObserved(revision=self.next(), pod=pod)),
        ]
        random.shuffle(steps)
        for step in steps:
            step()

    def end_pod(self) -> None:
        """A pod goes; its claim follows later."""
        if self.pods:
            pod = self.pods.pop(self.random.choice(list(self.pods)))
            self.see(PodObserved(revision=self.next(), pod=pod, deleted=True))
            self.uncount(pod)
            self.note("deleted")

    def uncount(self, pod: Pod) -> None:
        for node, counted in self.counted.items():
            if any(one.uid == pod.uid for one in counted):
                self.counted[node] = [one for one in counted if one.uid != pod.uid]
                self.publish_node(node)

    def end_claim(self) -> None:
        """The claim of a pod that is gone goes, too; now and then another one."""
        orphans = [claim for claim in self.claims.values() if claim.pod_uid not in self.pods]
        if self.random.random() < 0.1:
            orphans = orphans or list(self.claims.values())
        if orphans:
            self.publish_claim(self.random.choice(orphans), deleted=True)

    def clear(self) -> None:
        """kube-scheduler clears an allocation, or the executor withdraws and voids it."""
        if allocated := [claim for claim in self.claims.values() if claim.allocation]:
            claim = self.random.choice(allocated)
            moved = self.membership[claim.allocation.node] != claim.pool  # type: ignore[union-attr]
            void = claim.decision if moved or self.random.random() < 0.5 else claim.void
            self.publish_claim(replace(claim, allocation=None, void=void))
            self.note("cleared")

    def pass_time(self) -> None:
        """A tick."""
        self.now_unix_s += self.random.choice([1.0, 1.0, 1.0, 7.0, 31.0])
        self.see(Tick(revision=self.next(), now_unix_s=self.now_unix_s))

    def change_policy(self) -> None:
        """Another placement mode."""
        self.policy_version += 1
        mode = MODES[self.policy_version % 2]
        policy = Policy("policy", "uid", placement=mode, version=self.policy_version)
        self.see(PolicyObserved(revision=self.next(), policy=policy))

    def fall_ill(self) -> None:
        """A card is reported ill, or well again."""
        node = self.random.choice(NODES)
        ill = self.random.choice([(), (), (f"gpu-{node}-0",)])
        self.see(
            InventoryObserved(revision=self.next(), node=node, driver=names.DRIVER, unhealthy=ill)
        )

    def move(self) -> None:
        """A node is labelled for another pool: first it is in none."""
        node, pool = self.random.choice(NODES), self.random.choice(POOLS)
        before = self.membership[node]
        if before and before != pool:
            self.membership[node] = ""
            self.leaving[node] = (before, pool, self.revision + 1)
            self.publish_node(node)

    def moved(self) -> None:
        """The old pool's log says that the node left."""
        for node, (old, new, since) in list(self.leaving.items()):
            if any(
                isinstance(record, NodeLeft)
                and record.node == node
                and record.node_revision >= since
                for record in self.logs[old].records
            ):
                del self.leaving[node]
                self.membership[node] = new
                self.publish_node(node)
                self.note("moved")

    # The executor.

    def look(self) -> None:
        """It reads the logs on, those of the newest epochs."""
        for domain, log in self.logs.items():
            done = self.executed.get((domain, log.epoch), 0)
            for record in log.records[done:]:
                for pod in record.pods if isinstance(record, Decided) else ():
                    for made in pod.claims:
                        self.allocations[made.uid, made.attempt] = made.allocation
                        self.running.append((made.uid, made.attempt))
            self.executed[domain, log.epoch] = len(log.records)

    def commit(self) -> None:
        """Some execution, perhaps long asleep, goes on with its checks and its write."""
        self.look()
        if not self.running:
            return
        at = self.random.randrange(len(self.running))
        uid, attempt = self.running[at]
        if self.random.random() < 0.8:
            del self.running[at]
        claim = self.claims.get(uid)
        if claim is None or claim.allocation is not None:
            return
        if attempt <= last_attempt_before(self.logs[claim.pool].epoch):
            return
        if claim.void >= attempt or claim.decision > attempt:
            return
        allocation = self.allocations[uid, attempt]
        self.publish_claim(replace(claim, allocation=allocation, decision=attempt))  # type: ignore[arg-type]
        self.note("committed")

    def bind(self) -> None:
        """A pod with its claims allocated is on its node, and then in the node's sum."""
        for uid, pod in self.pods.items():
            claim = next((one for one in self.claims.values() if one.pod_uid == uid), None)
            if claim is None or claim.allocation is None or pod.node:
                continue
            bound = replace(pod, node=claim.allocation.node, phase="Running")
            self.pods[uid] = bound
            self.see(PodObserved(revision=self.next(), pod=bound))
            self.counted[bound.node].append(bound)
            self.publish_node(bound.node)
            return

    def void(self) -> None:
        """A command to void arrives, perhaps late or twice."""
        if not self.commands:
            return
        command = self.random.choice(self.commands[-5:])
        claim = self.claims.get(command.claim_uid)
        if claim is not None and claim.allocation is None and claim.void < command.attempt:
            self.publish_claim(replace(claim, void=command.attempt))
            self.note("voided")

    def lose_log(self) -> None:
        """A log is lost: everything unallocated of the pool is voided, then a new epoch."""
        domain = self.random.choice(POOLS)
        epoch = self.logs[domain].epoch + 1
        for claim in list(self.claims.values()):
            if claim.pool == domain and claim.allocation is None:
                self.publish_claim(replace(claim, void=last_attempt_before(epoch)))
        lost = self.logs[domain].epoch
        self.open(domain, epoch)
        for one in self.replicas:
            if domain in one.state.domains:
                self.hand(one, LogLost(domain, lost))
        self.note("epochs")

    # The replicas.

    def hand(self, one: Replica, event: Event) -> None:
        effects: list[Effect] = handle(one.state, event)
        while one.state.unfinished:
            effects += handle(one.state, Continue())
        for effect in effects:
            if isinstance(effect, Append):
                after = one.last.get(effect.domain) if effect.chained else None
                identity = one.last[effect.domain] = object()
                one.outbox.append((effect, identity, after))
            elif isinstance(effect, Send):
                self.commands.append(effect.command)
            assert not isinstance(effect, Oversold), effect

    def turn(self) -> None:
        """A replica reads on, perhaps not to the end, believes that it serves, and appends."""
        one = self.random.choice(self.replicas)
        self.read_facts(one, self.random.choice([0, 0, 1, 3]))
        for domain, log in self.logs.items():
            self.read_log(one, domain)
            known = one.state.domains.get(domain)
            if known is not None and known.epoch == log.epoch and not known.serving:
                self.hand(one, Serve(domain, log.epoch, len(log.records)))
        for _ in range(self.random.choice([0, 1, 1, 9])):
            self.append(one)

    def read_facts(self, one: Replica, lag: int) -> None:
        """What the stream still has, up to the last few."""
        left = [
            sequence
            for sequence in range(one.catching.position + 1, len(self.facts) + 1)
            if sequence not in self.replaced
        ]
        for at, sequence in enumerate(left[: max(0, len(left) - lag)]):
            pending = len(left) - at - 1
            one.catching.read(sequence, pending)
            fact = self.facts[sequence - 1]
            self.hand(one, FactSeen(sequence, fact, more=pending > lag, whole=one.catching.whole))

    def read_log(self, one: Replica, domain: str) -> None:
        log = self.logs[domain]
        known = one.state.domains.get(domain)
        if known is None or known.epoch != log.epoch:
            return
        done = one.records.get((domain, log.epoch), 0)
        for sequence in range(done + 1, len(log.records) + 1):
            record = log.records[sequence - 1]
            self.hand(one, RecordSeen(domain, log.epoch, sequence, record))
        one.records[domain, log.epoch] = len(log.records)

    def append(self, one: Replica) -> None:
        """The oldest append reaches the bus; its answer may be lost."""
        if not one.outbox:
            return
        effect, identity, after = one.outbox.pop(0)
        log = self.logs[effect.domain]
        if log.epoch != effect.epoch:
            self.hand(one, LogLost(effect.domain, effect.epoch))
            return
        stale = effect.expected_last != len(log.records) or after not in (None, log.last)
        answered = self.random.random() < 0.9
        if stale:
            self.note("conflicts")
        else:
            log.last = identity
            self.store(effect.domain, effect.record)
        if stale or not answered:
            self.hand(one, AppendFailed(effect.domain, effect.epoch, "stale or unknown"))

    def late_append(self) -> None:
        """A replica that has not read anything since goes on with its appends."""
        self.append(self.random.choice(self.replicas))

    def restart(self) -> None:
        """A replica is killed and begins again from what the streams still have."""
        at = self.random.randrange(2)
        self.replicas[at] = replica(self.replicas[at].name)
        self.note("restarts")


MOVES: dict[Callable[[Simulation], None], int] = {
    Simulation.submit: 12,
    Simulation.turn: 40,
    Simulation.commit: 24,
    Simulation.bind: 10,
    Simulation.void: 10,
    Simulation.pass_time: 12,
    Simulation.late_append: 6,
    Simulation.end_pod: 11,
    Simulation.end_claim: 9,
    Simulation.clear: 3,
    Simulation.fall_ill: 1,
    Simulation.move: 1,
    Simulation.moved: 3,
    Simulation.change_policy: 1,
    Simulation.restart: 1,
}


def simulate(seed: int = 1, *, before: int = 400, moves: int = 2400) -> Simulation:
    """A run whose recording begins after ``before`` moves and goes on for ``moves``."""
    simulation = Simulation(seed)
    simulation.configure()
    for move in _moves(simulation, before + moves):
        if move == before:
            simulation.begin_recording()
            simulation.happened.clear()
        if move == before + moves // 2:
            simulation.lose_log()
    return simulation


def _moves(simulation: Simulation, count: int) -> Iterator[int]:
    for at in range(count):
        yield at
        (move,) = simulation.random.choices(list(MOVES), list(MOVES.values()))
        move(simulation)


def main() -> None:
    """Write the recording that the tests replay, and say what is in it."""
    simulation = simulate()
    write_recording(Path(sys.argv[1]), simulation.lines)
    print(f"{len(simulation.lines)} lines;", dict(sorted(simulation.happened.items())))


if __name__ == "__main__":
    main()
