"""The allocator's replicas as an automaton: states of the real core by number, each transition
computed once."""

from dataclasses import dataclass

import msgspec

from dray.messages.decisions import AnyRecord, Opened, decode_record, encode_record
from dray.messages.facts import Fact
from dray_allocator.core.handle import handle
from dray_allocator.state.decision_log import LogFold
from dray_allocator.state.domain import Domain
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
from dray_sandbox.model_checker.copies import Copies
from dray_sandbox.model_checker.numbers import Numbers
from dray_sandbox.model_checker.subjects import POOL, START_UNIX_S, Subjects

EPOCH = 1
EXCLUSION_S = 60.0
"""Shorter than the ticks that close a search."""
ME, OTHER = "me", "other"
"""Names of replicas, as each sees itself: so that both are alike."""
Told = tuple[int, int, int, int]
"""A fact: its subject, version, the version published before, and what was given up of it."""
Folded = tuple[int, int, bool]
"""A record: its sequence, number, and whether the reader wrote it itself."""


@dataclass(frozen=True, slots=True)
class Appended:
    """A record on its way to the log."""

    record: int
    expected: int
    chained: bool


@dataclass(frozen=True, slots=True)
class Acted:
    """What a replica made of an event: its state, and what it asks its shell to do."""

    local: int
    appends: tuple[Appended, ...] = ()
    voids: tuple[tuple[int, int], ...] = ()
    """Claims (subjects) and attempts to be voided."""
    alarms: tuple[str, ...] = ()


class ModelReplicas:
    """States of the core that were reached, and where events lead from them."""

    def __init__(self, subjects: Subjects) -> None:
        self.records: Numbers[AnyRecord] = Numbers()
        self._subjects = subjects
        self._configuration = subjects.configuration()
        self._locals: Numbers[bytes] = Numbers()
        self._copies = Copies()
        self._acted: dict[tuple[int, int], Acted] = {}
        self._read: dict[tuple[object, ...], int] = {}
        opened = Opened(
            domain=POOL, epoch=EPOCH, writer="c", facts_sequence=0, now_unix_s=START_UNIX_S
        )
        self.opened = self._number(opened)

    @property
    def size(self) -> tuple[int, int]:
        """How many states of the core were reached, by how many transitions."""
        return len(self._locals), len(self._acted) + len(self._read)

    def begin(self) -> int:
        """A replica that has read the configuration and the log's opening."""
        return self.restarted((), ((1, self.opened, False),))

    def act(self, local: int, end: int) -> Acted:
        """It decides; where it does not serve, it begins to, the log's last record being
        ``end``."""
        known = self._acted.get((local, end))
        if known is None:
            state = self._state(local)
            serving = state.domains[POOL].serving
            event = Continue() if serving else Serve(POOL, EPOCH, end)
            known = self._acted[local, end] = self._decide(state, event)
        return known

    def read(self, local: int, facts: tuple[Told, ...], records: tuple[Folded, ...]) -> int:
        """It folds these facts and records and decides nothing yet."""
        key = (local, facts, records)
        known = self._read.get(key)
        if known is None:
            state = self._state(local)
            self._fold(state, facts, records)
            known = self._read[key] = self._keep(state)
        return known

    def failed(self, local: int) -> int:
        """It hears that its append failed, or that nobody knows."""
        known = self._read.get((local,))
        if known is None:
            state = self._state(local)
            handle(state, AppendFailed(POOL, EPOCH, "explored"))
            known = self._read[local,] = self._keep(state)
        return known

    def restarted(self, facts: tuple[Told, ...], records: tuple[Folded, ...]) -> int:
        """A new process that has read everything there is and serves nothing yet."""
        key = ("restarted", facts, records)
        known = self._read.get(key)
        if known is None:
            state = AllocatorState(AllocatorOptions(writer=ME, exclusion_s=EXCLUSION_S))
            for sequence, fact in enumerate(self._configuration, 1):
                handle(state, FactSeen(sequence, fact, more=True))
            self._fold(state, facts, records[:-1])
            sequence, number, mine = records[-1]
            record = self._as_seen(number, mine)
            handle(state, RecordSeen(POOL, EPOCH, sequence, record, more=False))
            known = self._read[key] = self._keep(state)
        return known

    def log(self, local: int) -> LogFold:
        """The log as a replica in this state has folded it."""
        return self._state(local).domains[POOL].confirmed

    def _fold(
        self, state: AllocatorState, facts: tuple[Told, ...], records: tuple[Folded, ...]
    ) -> None:
        """All replicas have read the same facts at any time, so that none ever lacks what a record
        was decided by: how many there were is forgotten."""
        for subject, version, before, given_up in facts:
            fact: Fact = self._subjects.fact(subject, version, before, given_up)
            handle(state, FactSeen(state.facts.position + 1, fact, more=True))
            state.facts.position = len(self._configuration)
            state.facts.reached.clear()
        for sequence, number, mine in records:
            record = self._as_seen(number, mine)
            handle(state, RecordSeen(POOL, EPOCH, sequence, record, more=True))

    def _decide(self, state: AllocatorState, event: Continue | Serve) -> Acted:
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
        return Acted(self._keep(state), tuple(appends), tuple(voids), tuple(alarms))

    def _number(self, record: AnyRecord) -> int:
        payload = encode_record(record)
        return self.records.of(payload, decode_record(payload))

    def _as_seen(self, number: int, mine: bool) -> AnyRecord:
        record = self.records[number]
        if mine or record.writer != ME:
            return record
        other: AnyRecord = msgspec.structs.replace(record, writer=OTHER)
        return other

    def _state(self, local: int) -> AllocatorState:
        return self._copies.taken(self._locals[local])

    def _keep(self, state: AllocatorState) -> int:
        for domain in state.domains.values():
            domain.asked.clear()  # It may ask again; the model keeps every command for ever.
        key = essence(state)
        known = self._locals.find(key)
        return self._locals.of(key, self._copies.made(state)) if known is None else known


def essence(state: AllocatorState) -> bytes:
    """Equal for states that answer all events alike.

    Caches are left out that follow from the rest: the ledger, the fleet, what was explained.
    """
    facts = state.facts
    parts = [
        [facts.position, facts.synced, facts.whole, facts.now_unix_s],
        [facts.claims, facts.gone_claims, facts.given_up, facts.pods, facts.gone_pods],
        sorted((name, fact.revision) for name, fact in facts.nodes.items()),
        {name: _domain(domain) for name, domain in state.domains.items()},
        sorted((str(device), one.ticks) for device, one in state.suspects.items()),
    ]
    return msgspec.json.encode(parts, order="sorted")


def _domain(domain: Domain) -> list[object]:
    waits = domain.fence is not None and max(0, domain.fence - domain.current.sequence)
    return [
        domain.epoch,
        domain.confirmed,
        domain.current,
        list(domain.appended),
        [domain.serving, waits, domain.lost, domain.read, domain.ticked, domain.settle],
        domain.queue.snapshot(),
        sorted(domain.unsettled),
    ]
