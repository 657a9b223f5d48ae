"""Replicas of the allocator that learn of the truth late, and append to its logs."""

import dataclasses
from random import Random
from typing import Any

from tests.unit.allocator.histories.truth import POOLS, Truth

from dray.messages.checkpoints import NO_PARTS
from dray.messages.decisions import decode_record, encode_record
from dray_allocator.core.handle import handle
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    Append,
    AppendFailed,
    Continue,
    DoublyAllocated,
    Event,
    FactSeen,
    Follow,
    RecordSeen,
    Send,
    Serve,
    Unfollow,
)
from dray_allocator.values.options import AllocatorOptions

REPLICAS = ("one", "two", "three", "four")


class Replica:
    """A replica and how far it has read."""

    def __init__(self, name: str, options: AllocatorOptions) -> None:
        self.name = name
        self.state = AllocatorState(dataclasses.replace(options, writer=name))
        self.facts = 0
        self.records = dict.fromkeys(POOLS, 0)
        self.outbox: list[tuple[Append, object, object]] = []
        """Appends on their way to the bus, in order: each with its identity, and with that of
        the append it must follow."""
        self.last = dict.fromkeys(POOLS, object())
        self.checked = -1
        """The version of the device usage that was checked last."""


class Replicas(Truth):
    """A cluster and those who decide about its pods."""

    OPTIONS = AllocatorOptions(exclusion_s=5, checkpoint_interval_s=10, decided_bytes=1500)

    def __init__(self, make: Any, replicas: int = 2) -> None:
        super().__init__(make)
        self.replicas = [Replica(name, self.OPTIONS) for name in REPLICAS[:replicas]]
        self.first = dict.fromkeys(POOLS, 1)
        """Sequence of the first record that each log still has."""
        self.dead: list[Replica] = []
        """What they have sent may still arrive."""
        self.configure()

    def configure(self) -> None:
        """See ``Truth.configure``; then everybody knows it."""
        super().configure()
        for replica in self.replicas:
            self.read_on(replica, lag=0)

    def hand(self, replica: Replica, event: Event) -> None:
        """The replica takes the event, and its effects their way."""
        effects = handle(replica.state, event)
        while replica.state.unfinished:
            effects += handle(replica.state, Continue())
        for effect in effects:
            if isinstance(effect, Follow | Unfollow):
                replica.records[effect.domain] = 0
            elif isinstance(effect, Append):
                after = replica.last[effect.domain] if effect.chained else None
                replica.last[effect.domain] = object()
                replica.outbox.append((effect, replica.last[effect.domain], after))
            elif isinstance(effect, Send):
                self.commands.append(effect)
            assert not isinstance(effect, DoublyAllocated), effect

    def turn(self, random: Random) -> None:
        """A replica reads on, not always to the end, believes that it serves, and appends."""
        replica = random.choice(self.replicas)
        self.read_on(replica, random.choice([0, 0, 0, 1, 3]))
        for _ in range(random.choice([0, 1, 1, 9])):
            self.append(replica, answered=random.random() < 0.8)

    def restart(self, random: Random) -> None:
        """A replica dies, and another begins from what the bus holds."""
        at = random.randrange(len(self.replicas))
        self.dead = [*self.dead[-1:], self.replicas[at]]
        self.replicas[at] = fresh = Replica(self.replicas[at].name, self.OPTIONS)
        for sequence in self.stored():
            more = sequence < len(self.facts)
            self.hand(fresh, FactSeen(sequence, self.facts[sequence - 1], more=more))
        fresh.facts = len(self.facts)

    def read_on(self, replica: Replica, lag: int) -> None:
        """Everything but the last few facts; nobody stops the other replica."""
        self.read_facts(replica, lag)
        for pool in POOLS:
            self.read_log(replica, pool)
            domain = replica.state.domains.get(pool)
            if domain is not None and not domain.serving:
                self.hand(replica, Serve(pool, 1, len(self.logs[pool])))

    def listen(self, random: Random) -> None:
        """A replica reads one of the streams only, and some of it twice."""
        replica = random.choice(self.replicas)
        back = random.choice([0, 2, 5])
        if random.random() < 0.5:
            replica.facts = max(0, replica.facts - back)
            self.read_facts(replica, random.randrange(4))
        else:
            pool = random.choice(POOLS)
            replica.records[pool] = max(0, replica.records[pool] - back)
            self.read_log(replica, pool)

    def trim(self, random: Random) -> None:
        """The records below the last checkpoint but one of a log go, or none yet."""
        pool = random.choice(POOLS)
        starts, parts, first = [], NO_PARTS, 1
        for sequence, record in enumerate(self.logs[pool], 1):
            parts = parts.followed_by(record)
            first = sequence if len(parts.parts) == 1 else first
            starts += [first] if parts.is_complete else []
        self.first[pool] = starts[-2] if len(starts) > 1 else 1

    def left_of(self, pool: str, read: int) -> range:
        """Sequences of the records after ``read`` that the log still has."""
        return range(max(read + 1, self.first[pool]), len(self.logs[pool]) + 1)

    def read_facts(self, replica: Replica, lag: int) -> None:
        for sequence in range(replica.facts + 1, len(self.facts) - lag + 1):
            self.hand(replica, FactSeen(sequence, self.facts[sequence - 1]))
            replica.facts = sequence

    def read_log(self, replica: Replica, pool: str) -> None:
        if pool not in replica.state.domains:
            return
        last = len(self.logs[pool])
        for sequence in self.left_of(pool, replica.records[pool]):
            record = self.logs[pool][sequence - 1]
            self.hand(replica, RecordSeen(pool, 1, sequence, record, more=sequence < last))
            replica.records[pool] = sequence

    def late_append(self, random: Random) -> None:
        """A replica that has not read anything since its append goes on with it."""
        one = random.choice([*self.replicas, *self.dead])
        self.append(one, answered=random.random() < 0.5)

    def append(self, replica: Replica, answered: bool) -> None:
        """The oldest append reaches the bus; its answer may be lost."""
        if not replica.outbox:
            return
        one, identity, after = replica.outbox.pop(0)
        log = self.logs[one.domain]
        stale = one.expected_last != len(log) or after not in (None, self.last[one.domain])
        if not stale:
            self.last[one.domain] = identity
            log.append(decode_record(encode_record(one.record)))
        if (stale or not answered) and replica not in self.dead:
            self.hand(replica, AppendFailed(one.domain, 1, "stale or unknown"))

    def catch_up(self, replica: Replica) -> None:
        for sequence in range(replica.facts + 1, len(self.facts) + 1):
            handle(replica.state, FactSeen(sequence, self.facts[sequence - 1], more=True))
        for pool in POOLS:
            domain = replica.state.domains.get(pool)
            if domain is None:
                continue
            handle(replica.state, AppendFailed(pool, 1, "stopped"))
            for sequence in self.left_of(pool, 0):
                record = self.logs[pool][sequence - 1]
                handle(replica.state, RecordSeen(pool, 1, sequence, record, more=True))
