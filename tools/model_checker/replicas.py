"""The allocator's replicas as an automaton: interned states of the real core and transitions."""

from dataclasses import dataclass, replace

import msgspec

from dray.messages.decisions import AnyRecord, Opened, decode_record, encode_record
from dray.messages.facts import Fact
from dray_allocator.core.handle import handle
from dray_allocator.state.domain import LogFold, SchedulingDomain
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    Append,
    AppendFailed,
    Continue,
    DoublyAllocated,
    Effect,
    FactSeen,
    RecordSeen,
    Send,
    Serve,
)
from dray_allocator.values.options import AllocatorOptions
from tools.model_checker.intern_table import Interned, StateCopies
from tools.model_checker.subjects import POOL, START_UNIX_S, Subjects

EPOCH = 1
EXCLUSION_S = 60.0
"""Shorter than the closing ticks of a search."""
CHECKPOINT_S = 30.0
"""Shorter than a tick of a search."""
ME, OTHER = "me", "other"
"""Names of replicas from each one's view, so that their states can be equal."""
PublishedFact = tuple[int, int, int, int]
"""A fact: subject, version, last existing version, and record of given-up attempts."""
LogEntry = tuple[int, int, bool]
"""A record: sequence, number, and whether the reader wrote it."""


@dataclass(frozen=True, slots=True)
class Appended:
    """A pending append."""

    record: int
    expected: int
    chained: bool


@dataclass(frozen=True, slots=True)
class ReplicaStep:
    """A replica's state after an event, and its effects."""

    local: int
    appends: tuple[Appended, ...] = ()
    voids: tuple[tuple[int, int], ...] = ()
    """Claims (subjects) and attempts to be voided."""
    alarms: tuple[str, ...] = ()


class ModelReplicas:
    """Visited states of the core and their transitions."""

    def __init__(
        self, subjects: Subjects, *, checkpoints: bool = False, pods_in_parts: bool = False
    ) -> None:
        self.records: Interned[AnyRecord] = Interned()
        self._subjects = subjects
        self._options = AllocatorOptions(writer=ME, exclusion_s=EXCLUSION_S)
        if checkpoints:
            self._options = replace(self._options, checkpoint_interval_s=CHECKPOINT_S)
        if pods_in_parts:
            self._options = replace(self._options, decided_bytes=1)
        self._configuration = subjects.configuration()
        self._locals: Interned[bytes] = Interned()
        self._copies = StateCopies()
        self._steps: dict[tuple[int, int], ReplicaStep] = {}
        self._read: dict[tuple[object, ...], int] = {}
        opened = Opened(
            domain=POOL, epoch=EPOCH, writer="c", facts_sequence=0, now_unix_s=START_UNIX_S
        )
        self.opened = self._number(opened)

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of visited states and transitions."""
        return len(self._locals), len(self._steps) + len(self._read)

    def initial(self) -> int:
        """A replica that has read the configuration and the log's first record."""
        return self.restarted((), ((1, self.opened, False),))

    def act(self, local: int, end: int) -> ReplicaStep:
        """Decide, or start serving if it does not serve; ``end`` is the log's last record."""
        known = self._steps.get((local, end))
        if known is None:
            state = self._state(local)
            serving = state.domains[POOL].serving
            event = Continue() if serving else Serve(POOL, EPOCH, end)
            known = self._steps[local, end] = self._decide(state, event)
        return known

    def read(
        self, local: int, facts: tuple[PublishedFact, ...], records: tuple[LogEntry, ...]
    ) -> int:
        """Apply facts and records without a decision."""
        key = (local, facts, records)
        known = self._read.get(key)
        if known is None:
            state = self._state(local)
            self._fold(state, facts, records)
            known = self._read[key] = self._intern(state)
        return known

    def failed(self, local: int) -> int:
        """Handle a failed append, or one without an answer."""
        known = self._read.get((local,))
        if known is None:
            state = self._state(local)
            handle(state, AppendFailed(POOL, EPOCH, "explored"))
            known = self._read[local,] = self._intern(state)
        return known

    def restarted(self, facts: tuple[PublishedFact, ...], records: tuple[LogEntry, ...]) -> int:
        """A restarted replica that has read everything and does not serve yet."""
        key = ("restarted", facts, records)
        known = self._read.get(key)
        if known is None:
            state = AllocatorState(self._options)
            for sequence, fact in enumerate(self._configuration, 1):
                handle(state, FactSeen(sequence, fact, more=True))
            self._fold(state, facts, records[:-1])
            sequence, number, mine = records[-1]
            record = self._with_writer(number, mine)
            handle(state, RecordSeen(POOL, EPOCH, sequence, record, more=False))
            known = self._read[key] = self._intern(state)
        return known

    def log(self, local: int) -> LogFold:
        """The fold of the log in this state."""
        return self._state(local).domains[POOL].confirmed

    def _fold(
        self, state: AllocatorState, facts: tuple[PublishedFact, ...], records: tuple[LogEntry, ...]
    ) -> None:
        """Apply facts and records, without the number of facts: all replicas have always read the
        same ones."""
        for subject, version, before, given_up in facts:
            fact: Fact = self._subjects.fact(subject, version, before, given_up)
            handle(state, FactSeen(state.facts.position + 1, fact, more=True))
            state.facts.position = len(self._configuration)
            state.facts.reached.clear()
        for sequence, number, mine in records:
            record = self._with_writer(number, mine)
            handle(state, RecordSeen(POOL, EPOCH, sequence, record, more=True))

    def _decide(self, state: AllocatorState, event: Continue | Serve) -> ReplicaStep:
        effects: list[Effect] = handle(state, event)
        while state.unfinished:
            effects += handle(state, Continue())
        appends, voids, alarms = [], [], []
        for effect in effects:
            match effect:
                case Append():
                    number = self._number(effect.record)
                    appends.append(Appended(number, effect.expected_last, effect.chained))
                case Send(command=command):
                    claim = self._subjects.by_uid[command.claim_uid]
                    voids.append((claim, command.attempt))
                case DoublyAllocated():
                    alarms.append(f"{effect.device}: {effect.detail}")
                case _:
                    pass
        return ReplicaStep(self._intern(state), tuple(appends), tuple(voids), tuple(alarms))

    def _number(self, record: AnyRecord) -> int:
        payload = encode_record(record)
        return self.records.of(payload, decode_record(payload))

    def _with_writer(self, number: int, mine: bool) -> AnyRecord:
        record = self.records[number]
        if mine or record.writer != ME:
            return record
        other: AnyRecord = msgspec.structs.replace(record, writer=OTHER)
        return other

    def _state(self, local: int) -> AllocatorState:
        return self._copies.load(self._locals[local])

    def _intern(self, state: AllocatorState) -> int:
        for domain in state.domains.values():
            domain.asked.clear()  # It may ask again; the model keeps every command.
        key = state_key(state)
        known = self._locals.find(key)
        return self._locals.of(key, self._copies.dump(state)) if known is None else known


def state_key(state: AllocatorState) -> bytes:
    """Equal for states that handle all events alike.

    Without derived caches: the ledger, the fleet, explanations.
    """
    facts = state.facts
    parts = [
        [facts.position, facts.synced, facts.whole, facts.now_unix_s],
        [facts.claims, facts.gone_claims, facts.given_up, facts.pods, facts.gone_pods],
        sorted((name, fact.revision) for name, fact in facts.nodes.items()),
        {name: _domain(domain) for name, domain in state.domains.items()},
        sorted((str(device), state.ticks - one.since) for device, one in state.suspects.items()),
    ]
    return msgspec.json.encode(parts, order="sorted")


def _domain(domain: SchedulingDomain) -> list[object]:
    waits = domain.serving_since is not None and max(
        0, domain.serving_since - domain.current.sequence
    )
    return [
        domain.epoch,
        domain.confirmed,
        domain.current,
        list(domain.appended),
        [domain.serving, waits, domain.lost, domain.read, domain.ticked, domain.settle],
        domain.queue.snapshot(),
        domain.groups.snapshot(domain.queue.capacity_version),
        sorted(domain.unsettled),
    ]
