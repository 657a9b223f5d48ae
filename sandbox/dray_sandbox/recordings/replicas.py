"""Two allocators' cores: they read late, lose answers, crash and begin again."""

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
from dray_sandbox.recordings.bus import SimulatedBus
from dray_sandbox.recordings.executor import RecordedExecutor

RULES = AllocatorOptions(exclusion_s=20.0, checkpoint_interval_s=120.0, uncommitted_after_s=30.0)


@dataclass(slots=True)
class RecordedReplica:
    """An allocator's core, how far it has read, and what it has on the way."""

    name: str
    state: AllocatorState
    catching: GapTracker = field(default_factory=GapTracker)
    records: dict[tuple[str, int], int] = field(default_factory=dict)
    outbox: list[tuple[Append, object, object]] = field(default_factory=list)
    last: dict[str, object] = field(default_factory=dict)


def replica(name: str) -> RecordedReplica:
    """A fresh process."""
    return RecordedReplica(name, AllocatorState(replace(RULES, writer=name)))


class RecordedReplicas:
    """Both believe that they serve."""

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
        self._note = note
        self._replicas = [replica("allocator-0"), replica("allocator-1")]

    def hand(self, one: RecordedReplica, event: Event) -> None:
        """An event for one of them; what it wants is on its way."""
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

    def turn(self) -> None:
        """A replica reads on, perhaps not to the end, believes that it serves, and appends."""
        one = self._random.choice(self._replicas)
        self.read_facts(one, self._random.choice([0, 0, 1, 3]))
        for domain, log in self._bus.logs.items():
            self.read_log(one, domain)
            known = one.state.domains.get(domain)
            if known is not None and known.epoch == log.epoch and not known.serving:
                self.hand(one, Serve(domain, log.epoch, len(log.records)))
        for _ in range(self._random.choice([0, 1, 1, 9])):
            self.append(one)

    def read_facts(self, one: RecordedReplica, lag: int) -> None:
        """What the stream still has, up to the last few."""
        left = [
            sequence
            for sequence in range(one.catching.position + 1, len(self._bus.facts) + 1)
            if sequence not in self._bus.replaced
        ]
        for at, sequence in enumerate(left[: max(0, len(left) - lag)]):
            pending = len(left) - at - 1
            one.catching.read(sequence, pending)
            fact = self._bus.facts[sequence - 1]
            self.hand(one, FactSeen(sequence, fact, more=pending > lag, whole=one.catching.whole))

    def read_log(self, one: RecordedReplica, domain: str) -> None:
        """All records that it has not read."""
        log = self._bus.logs[domain]
        known = one.state.domains.get(domain)
        if known is None or known.epoch != log.epoch:
            return
        done = one.records.get((domain, log.epoch), 0)
        for sequence in range(done + 1, len(log.records) + 1):
            record = log.records[sequence - 1]
            self.hand(one, RecordSeen(domain, log.epoch, sequence, record))
        one.records[domain, log.epoch] = len(log.records)

    def append(self, one: RecordedReplica) -> None:
        """The oldest append reaches the bus; its answer may be lost."""
        if not one.outbox:
            return
        effect, identity, after = one.outbox.pop(0)
        log = self._bus.logs[effect.domain]
        if log.epoch != effect.epoch:
            self.hand(one, LogLost(effect.domain, effect.epoch))
            return
        stale = effect.expected_last != len(log.records) or after not in (None, log.last)
        answered = self._random.random() < 0.9
        if stale:
            self._note("conflicts")
        else:
            log.last = identity
            self._bus.store(effect.domain, effect.record)
        if stale or not answered:
            self.hand(one, AppendFailed(effect.domain, effect.epoch, "stale or unknown"))

    def late_append(self) -> None:
        """A replica that has not read anything since goes on with its appends."""
        self.append(self._random.choice(self._replicas))

    def restart(self) -> None:
        """A replica is killed and begins again from what the streams still have."""
        at = self._random.randrange(2)
        self._replicas[at] = replica(self._replicas[at].name)
        self._note("restarts")

    def lose(self, domain: str, epoch: int) -> None:
        """A log is gone."""
        for one in self._replicas:
            if domain in one.state.domains:
                self.hand(one, LogLost(domain, epoch))
