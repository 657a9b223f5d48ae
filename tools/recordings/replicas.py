"""Two allocators' cores, which read late, lose answers and restart."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from dray.bus.gap_tracker import GapTracker
from dray_allocator.core.handle import handle
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    Append,
    AppendFailed,
    Continue,
    DoublyAllocated,
    Effect,
    Event,
    FactSeen,
    LogLost,
    RecordSeen,
    Send,
    Serve,
)
from dray_allocator.values.options import AllocatorOptions
from tools.recordings.bus import SimulatedBus
from tools.recordings.executor import RecordedExecutor

OPTIONS = AllocatorOptions(exclusion_s=20.0, checkpoint_interval_s=120.0, uncommitted_after_s=30.0)


@dataclass(slots=True)
class RecordedReplica:
    """An allocator's core, its positions in the streams, and its pending appends."""

    name: str
    state: AllocatorState
    gaps: GapTracker = field(default_factory=GapTracker)
    records: dict[tuple[str, int], int] = field(default_factory=dict)
    outbox: list[tuple[Append, object, object]] = field(default_factory=list)
    last: dict[str, object] = field(default_factory=dict)


def replica(name: str) -> RecordedReplica:
    """A new process."""
    return RecordedReplica(name, AllocatorState(replace(OPTIONS, writer=name)))


class RecordedReplicas:
    """Two replicas, which both serve."""

    def __init__(
        self,
        bus: SimulatedBus,
        executor: RecordedExecutor,
        random: Random,
        note: Callable[[str], None],
    ) -> None:
        self._bus = bus
        self._executor = executor
        self._random = random
        self._count_event = note
        self._replicas = [replica("allocator-0"), replica("allocator-1")]

    def apply(self, one: RecordedReplica, event: Event) -> None:
        """Apply an event to a replica and send its effects."""
        effects: list[Effect] = handle(one.state, event)
        while one.state.unfinished:
            effects += handle(one.state, Continue())
        for effect in effects:
            if isinstance(effect, Append):
                after = one.last.get(effect.domain) if effect.chained else None
                identity = one.last[effect.domain] = object()
                one.outbox.append((effect, identity, after))
            elif isinstance(effect, Send):
                self._executor.commands.append(effect.command)
            assert not isinstance(effect, DoublyAllocated), effect

    def step(self) -> None:
        """Let a replica read, possibly not to the end, serve, and append."""
        one = self._random.choice(self._replicas)
        self.read_facts(one, self._random.choice([0, 0, 1, 3]))
        for domain, log in self._bus.logs.items():
            self.read_log(one, domain)
            known = one.state.domains.get(domain)
            if known is not None and known.epoch == log.epoch and not known.serving:
                self.apply(one, Serve(domain, log.epoch, len(log.records)))
        for _ in range(self._random.choice([0, 1, 1, 9])):
            self.append(one)

    def read_facts(self, one: RecordedReplica, lag: int) -> None:
        """Read the stream's remaining facts, except the last few."""
        left = [
            sequence
            for sequence in range(one.gaps.position + 1, len(self._bus.facts) + 1)
            if sequence not in self._bus.replaced
        ]
        for at, sequence in enumerate(left[: max(0, len(left) - lag)]):
            pending = len(left) - at - 1
            one.gaps.read(sequence, pending)
            fact = self._bus.facts[sequence - 1]
            self.apply(one, FactSeen(sequence, fact, more=pending > lag, whole=one.gaps.whole))

    def read_log(self, one: RecordedReplica, domain: str) -> None:
        """Read all new records."""
        log = self._bus.logs[domain]
        known = one.state.domains.get(domain)
        if known is None or known.epoch != log.epoch:
            return
        done = one.records.get((domain, log.epoch), 0)
        for sequence in range(done + 1, len(log.records) + 1):
            record = log.records[sequence - 1]
            self.apply(one, RecordSeen(domain, log.epoch, sequence, record))
        one.records[domain, log.epoch] = len(log.records)

    def append(self, one: RecordedReplica) -> None:
        """Send the oldest append; its answer may be lost."""
        if not one.outbox:
            return
        effect, identity, after = one.outbox.pop(0)
        log = self._bus.logs[effect.domain]
        if log.epoch != effect.epoch:
            self.apply(one, LogLost(effect.domain, effect.epoch))
            return
        stale = effect.expected_last != len(log.records) or after not in (None, log.last)
        answered = self._random.random() < 0.9
        if stale:
            self._count_event("conflicts")
        else:
            log.last = identity
            self._bus.store(effect.domain, effect.record)
        if stale or not answered:
            self.apply(one, AppendFailed(effect.domain, effect.epoch, "stale or unknown"))

    def late_append(self) -> None:
        """Send an append of a replica that has read nothing since."""
        self.append(self._random.choice(self._replicas))

    def restart(self) -> None:
        """Kill a replica; its successor reads the streams again."""
        at = self._random.randrange(2)
        self._replicas[at] = replica(self._replicas[at].name)
        self._count_event("restarts")

    def lose(self, domain: str, epoch: int) -> None:
        """Notify the replicas of a lost log."""
        for one in self._replicas:
            if domain in one.state.domains:
                self.apply(one, LogLost(domain, epoch))
