"""What one look sees: facts and logs folded, what replicas answer, and Kubernetes' own objects."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.bus.topology import FACTS_STREAM
from dray.domain.claims import Claim, GivenUp
from dray.domain.devices import ResourceSlice
from dray.kube.convert import claim_from
from dray.kube.convert_metadata import time_from
from dray.kube.ports import CLAIMS, SLICES, Kube, Object
from dray.messages.base import Delivered
from dray.messages.decisions import AnyRecord, Opened, log_stream, log_subject
from dray.messages.facts import ClaimObserved, Fact, NodeObserved, SliceObserved, TemplateObserved
from dray.messages.rpc import Dump, DumpReply, Holding
from dray_allocator.events import FactSeen, RecordSeen
from dray_allocator.folding import subjects
from dray_allocator.handle import handle
from dray_allocator.rules import Rules
from dray_allocator.state import AllocatorState
from dray_allocator.wire import decoded_fact, record_of
from dray_claim_controller.observe.kinds import read

_READ_S = 60.0
"""For a whole stream; a log of a day of a large cluster is read in a few seconds."""
_ANSWER_S = 3.0


@dataclass(frozen=True, slots=True)
class Log:
    """A domain's decision log, as read."""

    whole: bool = False
    """Whether it was read from its opening on: nothing was trimmed."""
    opened_unix_s: float = 0.0
    told: dict[str, float] = field(default_factory=dict)
    """Per claim, the time of the last record about it."""


@dataclass(frozen=True, slots=True)
class Replica:
    """What the replica that serves a domain says of it."""

    epoch: int
    instance: str
    facts_sequence: int
    log_sequence: int
    holdings: dict[str, Holding]


@dataclass(frozen=True, slots=True)
class Written:
    """A claim as Kubernetes has it, and when its status was written, as far as it says so."""

    claim: Claim
    since_unix_s: float | None


@dataclass(slots=True)
class Sight:
    """All sides, read one after the other: what moves meanwhile seems to differ."""

    state: AllocatorState
    """Folded by the allocator's own code, and never decided upon."""
    logs: dict[str, Log] = field(default_factory=dict)
    replicas: dict[str, Replica | str] = field(default_factory=dict)
    """Per domain; a text says why there is no answer."""
    fact_times: dict[str, float] = field(default_factory=dict)
    """Per claim, when the bus stored its fact."""
    fact_slices: dict[str, ResourceSlice] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)
    """Base templates that can't be used, as the facts say, and why."""
    lent: dict[str, None] = field(default_factory=dict)
    """Nodes whose devices kube-scheduler allocates, or has allocated."""
    given_up: dict[str, GivenUp] = field(default_factory=dict)
    """Of claims whose attempts the claim-controller has given up, by UID."""
    claims: dict[str, Written] = field(default_factory=dict)
    slices: dict[str, ResourceSlice] = field(default_factory=dict)


async def look(bus: Bus, kube: Kube) -> Sight:
    """Read all sides once.

    Raises:
        BusUnavailableError: the bus is away, or a stream was not read in time.
        StreamMissingError: there are no facts.
        UndecodableMessageError: a fact or record is none that this version knows.
        KubeError: claims or slices can't be listed.
    """
    sight = await _facts(bus, Rules())
    rules = await _rules(bus, sight.state)
    if rules != Rules():
        sight = await _facts(bus, rules)
    for domain in sight.state.domains.values():
        sight.logs[domain.name] = await _log(bus, sight.state, domain.name, domain.epoch)
    for domain in sight.state.domains.values():
        sight.replicas[domain.name] = await _asked(bus, domain.name)
    for obj in (await kube.list(CLAIMS)).objects:
        sight.claims[obj["metadata"]["uid"]] = Written(claim_from(obj), _written_unix_s(obj))
    for obj in (await kube.list(SLICES)).objects:
        if (slice_ := read(SLICES, obj)[0]) is not None:
            sight.slices[obj["metadata"]["name"]] = slice_
    return sight


async def _facts(bus: Bus, rules: Rules) -> Sight:
    sight = Sight(AllocatorState(rules))
    async with aclosing(_whole(bus, FACTS_STREAM)) as all_facts:
        async for delivered in all_facts:
            fact = decoded_fact(delivered, rules.drivers)
            if fact is not None:
                handle(sight.state, FactSeen(delivered.sequence, fact, more=True))
                _note(sight, fact, delivered.time_unix_s)
    return sight


def _note(sight: Sight, fact: Fact, time_unix_s: float) -> None:
    """What the allocator's state does not keep."""
    match fact:
        case ClaimObserved(claim=claim):
            sight.fact_times[claim.uid] = time_unix_s
            sight.given_up.pop(claim.uid, None)
            if fact.given_up is not None and not fact.deleted:
                sight.given_up[claim.uid] = fact.given_up
        case SliceObserved(slice=one, deleted=False):
            sight.fact_slices[one.name] = one
        case SliceObserved(slice=one):
            sight.fact_slices.pop(one.name, None)
        case TemplateObserved(unusable=str(why)) if why and not fact.deleted:
            sight.unusable[f"{fact.namespace}/{fact.name}"] = why
        case NodeObserved(node=node) if node.owner != "dray" or fact.recalled_unix_s is not None:
            sight.lent[node.name] = None
        case NodeObserved(node=node):
            sight.lent.pop(node.name, None)
        case _:
            pass


async def _rules(bus: Bus, state: AllocatorState) -> Rules:
    """As the newest writer says; of settings that this version does not have, the defaults."""
    newest: AnyRecord | None = None
    for domain in state.domains.values():
        stream = log_stream(domain.name, domain.epoch)
        try:
            last = await bus.last(stream, log_subject(domain.name, domain.epoch))
        except StreamMissingError:
            continue
        record = record_of(last) if last is not None else None
        if record is not None and (newest is None or record.now_unix_s > newest.now_unix_s):
            newest = record
    try:
        return msgspec.convert(newest.settings, Rules) if newest is not None else Rules()
    except msgspec.ValidationError:
        return Rules()


async def _log(bus: Bus, state: AllocatorState, domain: str, epoch: int) -> Log:
    """Nothing of a log that is lost: that is told elsewhere."""
    log = Log()
    try:
        async with aclosing(_whole(bus, log_stream(domain, epoch))) as records:
            async for delivered in records:
                record = record_of(delivered)
                handle(state, RecordSeen(domain, epoch, delivered.sequence, record, more=True))
                if delivered.sequence == 1 and isinstance(record, Opened):
                    log = Log(whole=True, opened_unix_s=record.now_unix_s, told=log.told)
                log.told.update(dict.fromkeys(subjects(record).claims, record.now_unix_s))
    except StreamMissingError:
        pass
    return log


async def _whole(bus: Bus, stream: str) -> AsyncGenerator[Delivered, None]:
    """Everything that is in a stream now."""
    state = await bus.state(stream)
    if state is None:
        raise StreamMissingError(f"the stream {stream} does not exist")
    if state.first_sequence > state.last_sequence:
        return
    try:
        async with (
            asyncio.timeout(_READ_S),
            aclosing(bus.read(stream)) as reader,  # type: ignore[type-var]
        ):
            async for delivered in reader:
                yield delivered
                if delivered.sequence >= state.last_sequence or not delivered.pending:
                    return
    except TimeoutError:
        raise BusUnavailableError(f"{stream} was not read within {_READ_S:g} s") from None


async def _asked(bus: Bus, domain: str) -> Replica | str:
    """All pages of the serving replica's answer, or why there is none."""
    pages: list[DumpReply] = []
    while not pages or pages[-1].more:
        after = pages[-1].holdings[-1].uid if pages else ""
        question = msgspec.json.encode(Dump(domain=domain, after=after))
        try:
            answer = await bus.request(Dump.SUBJECT, question, timeout_s=_ANSWER_S)
            page = msgspec.json.decode(answer, type=DumpReply)
        except (BusUnavailableError, msgspec.MsgspecError) as error:
            return str(error)
        if page.error:
            return page.error
        pages.append(page)
    first = pages[0]
    return Replica(
        first.epoch,
        first.instance,
        first.facts_sequence,
        first.log_sequence,
        {one.uid: one for page in pages for one in page.holdings},
    )


def _written_unix_s(obj: Object) -> float | None:
    """The time of allocation; else of the last write to the status that the server noted."""
    allocation = (obj.get("status") or {}).get("allocation") or {}
    if allocation.get("allocationTimestamp"):
        return time_from(allocation["allocationTimestamp"])
    noted = [
        time_from(entry["time"])
        for entry in obj["metadata"].get("managedFields") or ()
        if entry.get("subresource") == "status" and entry.get("time")
    ]
    return max(noted, default=None)
