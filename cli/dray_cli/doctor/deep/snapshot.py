"""A snapshot of all sides: facts, decision logs, replicas' answers and Kubernetes objects."""

from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from dray.api.claims import Claim, GivenUp
from dray.api.devices import ResourceSlice
from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.bus.topology import FACTS_STREAM
from dray.kube.convert import claim_from
from dray.kube.convert_metadata import time_from
from dray.kube.ports import CLAIMS, SLICES, Kube, Object
from dray.messages.decisions import AnyRecord, log_stream, log_subject
from dray.messages.facts import ClaimObserved, Fact, NodeObserved, SliceObserved
from dray.messages.rpc import Dump, DumpReply, Holding
from dray_allocator.core.handle import handle
from dray_allocator.service.decision_logs import record_of
from dray_allocator.service.facts_consumer import decoded_fact
from dray_allocator.state.domain import subjects
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen, RecordSeen
from dray_allocator.values.options import AllocatorOptions
from dray_claim_controller.cache.resources import read
from dray_cli.streams import read_whole

_ANSWER_S = 3.0


@dataclass(frozen=True, slots=True)
class LogSummary:
    """A domain's decision log, as read."""

    whole: bool = False
    """Whether everything that counts is known, from the first record or from a checkpoint."""
    opened_unix_s: float = 0.0
    """Time of the first record that the log still has."""
    claim_times: dict[str, float] = field(default_factory=dict)
    """Per claim, the time of the last record about it."""


@dataclass(frozen=True, slots=True)
class ReplicaAnswer:
    """The answer of the replica that serves a domain."""

    epoch: int
    instance: str
    facts_sequence: int
    log_sequence: int
    holdings: dict[str, Holding]


@dataclass(frozen=True, slots=True)
class ClaimStatus:
    """A claim in the API server, and when its status was written, if known."""

    claim: Claim
    since_unix_s: float | None


@dataclass(slots=True)
class ClusterSnapshot:
    """All sides, read one after the other; changes during the reading appear as differences."""

    state: AllocatorState
    """Built by the allocator's code; nothing is decided with it."""
    logs: dict[str, LogSummary] = field(default_factory=dict)
    replicas: dict[str, ReplicaAnswer | str] = field(default_factory=dict)
    """By domain; a string is the reason why there is no answer."""
    fact_times: dict[str, float] = field(default_factory=dict)
    """Per claim, when the bus stored its fact."""
    fact_slices: dict[str, ResourceSlice] = field(default_factory=dict)
    scheduler_nodes: dict[str, None] = field(default_factory=dict)
    """Nodes whose devices kube-scheduler allocates, or has allocated."""
    given_up: dict[str, GivenUp] = field(default_factory=dict)
    """Attempts that the claim-controller has given up, by claim UID."""
    claims: dict[str, ClaimStatus] = field(default_factory=dict)
    slices: dict[str, ResourceSlice] = field(default_factory=dict)


async def collect(bus: Bus, kube: Kube) -> ClusterSnapshot:
    """Read all sides once.

    Raises:
        BusUnavailableError: the bus is unavailable, or a stream was not read in time.
        StreamMissingError: there are no facts.
        UndecodableMessageError: this version does not know a fact or record.
        KubeError: claims or slices can't be listed.
    """
    snapshot = await _facts(bus, AllocatorOptions())
    options = await _options(bus, snapshot.state)
    if options != AllocatorOptions():
        snapshot = await _facts(bus, options)
    for domain in snapshot.state.domains.values():
        snapshot.logs[domain.name] = await _log(bus, snapshot.state, domain.name, domain.epoch)
    for domain in snapshot.state.domains.values():
        snapshot.replicas[domain.name] = await _replica_answer(bus, domain.name)
    for obj in (await kube.list(CLAIMS)).objects:
        snapshot.claims[obj["metadata"]["uid"]] = ClaimStatus(claim_from(obj), _written_unix_s(obj))
    for obj in (await kube.list(SLICES)).objects:
        if (slice_ := read(SLICES, obj)[0]) is not None:
            snapshot.slices[obj["metadata"]["name"]] = slice_
    return snapshot


async def _facts(bus: Bus, options: AllocatorOptions) -> ClusterSnapshot:
    snapshot = ClusterSnapshot(AllocatorState(options))
    async with aclosing(read_whole(bus, FACTS_STREAM)) as all_facts:
        async for delivered in all_facts:
            fact = decoded_fact(delivered, options.drivers)
            if fact is not None:
                handle(snapshot.state, FactSeen(delivered.sequence, fact, more=True))
                _keep(snapshot, fact, delivered.time_unix_s)
    return snapshot


def _keep(snapshot: ClusterSnapshot, fact: Fact, time_unix_s: float) -> None:
    """Keep what the allocator's state does not."""
    match fact:
        case ClaimObserved(claim=claim):
            snapshot.fact_times[claim.uid] = time_unix_s
            snapshot.given_up.pop(claim.uid, None)
            if fact.given_up is not None and not fact.deleted:
                snapshot.given_up[claim.uid] = fact.given_up
        case SliceObserved(slice=one, deleted=False):
            snapshot.fact_slices[one.name] = one
        case SliceObserved(slice=one):
            snapshot.fact_slices.pop(one.name, None)
        case NodeObserved(node=node) if node.owner != "dray" or fact.recalled_unix_s is not None:
            snapshot.scheduler_nodes[node.name] = None
        case NodeObserved(node=node):
            snapshot.scheduler_nodes.pop(node.name, None)
        case _:
            pass


async def _options(bus: Bus, state: AllocatorState) -> AllocatorOptions:
    """The newest writer's settings; defaults if this version does not know them."""
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
        return (
            msgspec.convert(newest.settings, AllocatorOptions)
            if newest is not None
            else AllocatorOptions()
        )
    except msgspec.ValidationError:
        return AllocatorOptions()


async def _log(bus: Bus, state: AllocatorState, domain: str, epoch: int) -> LogSummary:
    """Read a log into ``state``. If it is lost, which is another finding, the summary is empty."""
    times: list[float] = []
    claim_times: dict[str, float] = {}
    try:
        async with aclosing(read_whole(bus, log_stream(domain, epoch))) as records:
            async for delivered in records:
                record = record_of(delivered)
                handle(state, RecordSeen(domain, epoch, delivered.sequence, record, more=True))
                times.append(record.now_unix_s)
                claim_times.update(dict.fromkeys(subjects(record).claims, record.now_unix_s))
    except StreamMissingError:
        pass
    is_whole = bool(times) and state.domains[domain].confirmed.is_whole
    return LogSummary(is_whole, times[0] if times else 0.0, claim_times)


async def _replica_answer(bus: Bus, domain: str) -> ReplicaAnswer | str:
    """All pages of the serving replica's answer, or the error."""
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
    return ReplicaAnswer(
        first.epoch,
        first.instance,
        first.facts_sequence,
        first.log_sequence,
        {one.uid: one for page in pages for one in page.holdings},
    )


def _written_unix_s(obj: Object) -> float | None:
    """The time of allocation, else of the last write to the status in managedFields."""
    allocation = (obj.get("status") or {}).get("allocation") or {}
    if allocation.get("allocationTimestamp"):
        return time_from(allocation["allocationTimestamp"])
    noted = [
        time_from(entry["time"])
        for entry in obj["metadata"].get("managedFields") or ()
        if entry.get("subresource") == "status" and entry.get("time")
    ]
    return max(noted, default=None)
