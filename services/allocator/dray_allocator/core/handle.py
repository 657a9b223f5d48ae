"""The pure core: events in, effects out. Nothing else changes the state.

``recompute`` serves replay, ``reasons`` serves ``dray explain``; both read a state into which
``handle`` folded facts and records.
"""

from itertools import islice

import msgspec

from dray.api.devices import DeviceId
from dray.api.pods import Pod
from dray.messages.decisions import (
    AnyRecord,
    Checkpoint,
    Decided,
    DecidedGroup,
    NodeLeft,
    PodDecision,
    Released,
    Waiting,
)
from dray.messages.rpc import PodScores
from dray.reasons import Reason
from dray_allocator.core.pool_subscriptions import earlier_read, fold_earlier, subscribe
from dray_allocator.cycle import records
from dray_allocator.cycle.ended_reservations import ends_of, leaving
from dray_allocator.cycle.records import decision_of, size_bytes, too_large
from dray_allocator.cycle.step import Step
from dray_allocator.explain.pods import explain_pod
from dray_allocator.gangs.decision import GroupStarts, GroupWaits, decide_group, undecidable
from dray_allocator.gangs.membership import membership
from dray_allocator.gangs.scheduler import GroupScheduler
from dray_allocator.placement.pod_request import PodRequest, wanted
from dray_allocator.placement.schedule import find
from dray_allocator.placement.scores import scores_of
from dray_allocator.state.domain import SchedulingDomain, subjects
from dray_allocator.state.logs import fold_record, forget_appended, forget_log, lose_log, stop_log
from dray_allocator.state.state import AllocatorState, Suspect
from dray_allocator.values.events import (
    AppendFailed,
    Continue,
    DoublyAllocated,
    EarlierFact,
    EarlierFactsRead,
    Effect,
    Event,
    FactSeen,
    FactsLost,
    LogLost,
    LogShortened,
    RecordSeen,
    RecordUndecodable,
    Serve,
    StandBy,
    Subscribe,
)

_TICKS_UNTIL_PUBLISHED = 2
"""Ticks after which facts that were observed together are all published: a tick may be published
between two of them."""
_DOMAINS_AT_ONCE = 16
"""The maximum number of domains that take a step after one event; the others take theirs after the
next ``Continue``."""
_DEVICES_AT_ONCE = 500
"""The maximum number of devices that are checked after one event; the others are checked after
later events."""


def handle(state: AllocatorState, event: Event) -> list[Effect]:
    """Fold one event and return the effects.

    Equal events give equal states and effects, except for ``took_us``. While ``state.unfinished``
    is true, hand in ``Continue``, also after other events.
    """
    if type(event) is FactSeen:
        effects = _fold_fact(state, event)
        if event.more:
            return effects
    else:
        effects = _fold(state, event)
        if is_followed_by_more(event):
            return effects
    goes_on = isinstance(event, Continue)
    ready = _in_turn(state, goes_on=goes_on)
    for domain in ready:
        groups, log = domain.groups, domain.current
        has_holds = log.group_holds or log.node_hold
        is_grouped = groups.touched or groups.postponed or groups.pending or has_holds
        has_waits = domain.ticked and domain.queue.unschedulable_pods
        scheduler = GroupScheduler(state, domain) if is_grouped or has_waits else None
        effects += Step(state, domain, goes_on=goes_on, groups=scheduler).take()
    return [*effects, *_checked(state, len(ready))] if state.suspects else effects


def _in_turn(state: AllocatorState, *, goes_on: bool) -> list[SchedulingDomain]:
    """The domains that take a step now: all, or the next ones after those that took a step before.
    A tick concerns all pools, so no more domains are looked at than needed."""
    last_place, most = state.last_place, _DOMAINS_AT_ONCE
    later = state.ready_after(last_place, most + 1, goes_on=goes_on)
    earlier: list[SchedulingDomain] = []
    if last_place and len(later) <= most:
        room = most + 1 - len(later)
        earlier = state.ready_after(0, room, goes_on=goes_on, last=last_place)
    state.is_postponed = len(earlier) + len(later) > most
    if not state.is_postponed:
        state.last_place = 0
        return [*earlier, *later]
    some = (later or earlier)[:most]
    state.last_place = some[-1].place
    return some


def is_followed_by_more(event: Event) -> bool:
    """Whether an event is only applied: more events are buffered, or earlier facts are being
    read."""
    if type(event) is FactSeen or type(event) is RecordSeen:
        return event.more
    return type(event) is EarlierFact


def is_searching(state: AllocatorState) -> bool:
    """Whether only long searches are unfinished; other events need not wait for them."""
    is_active = any(
        (domain.queue.active or domain.groups.active) and state.ready(domain)
        for domain in state.busy()
    )
    return state.unfinished and not is_active


def recompute(state: AllocatorState, record: AnyRecord) -> AnyRecord:
    """The record that this state's replica would have written in place of ``record``.

    The state must have folded every earlier record of the log and the facts up to
    ``record.facts_sequence``; it is not changed. The time of a release or a checkpoint depends on
    the writer's term, so only its content is computed again. ``opened`` is returned unchanged.

    Raises:
        KeyError: the facts show no such domain.
    """
    domain = state.domains[record.domain]
    match record:
        case DecidedGroup(pods=pods):
            domain.unwritten = record.learned
            made: AnyRecord = _group_again(state, domain, record)
        case Decided(pods=pods):
            domain.unwritten = record.learned
            again = [_decide_again(state, domain, pod) for pod in pods]
            made = records.decided(state, domain, tuple(p for p in again if p))
            _undo(state, domain, made)
        case Waiting(pod_uid=pod_uid):
            uids = [one.pod_uid for one in record.by_pod()]
            known = [state.facts.pods[uid] for uid in uids if uid in state.facts.pods]
            found_reasons = reasons(state, pod_uid)
            made = (
                next(records.waiting(state, domain, known, found_reasons))
                if len(known) == len(uids)
                else _groundless(record)
            )
        case Released(releases=releases, holds=holds, node_hold=node_hold):
            ends = ends_of(state, domain, releases)
            made = records.released(state, domain, ends, holds, node_hold)
        case NodeLeft(node=node):
            found = dict(leaving(state, domain))
            made = records.node_left(state, domain, node, found.get(node, -1))
        case Checkpoint():
            parts = records.checkpoint(state, domain)
            made = parts[min(record.part, len(parts)) - 1]
        case _:
            return record
    return _as_written_by(made, record)


def _group_again(
    state: AllocatorState, domain: SchedulingDomain, record: DecidedGroup
) -> DecidedGroup:
    """The same part of the decision on the group, as it would be decided now."""
    first = record.pods[0].group if record.pods else None
    found = decide_group(state, domain, first.group) if first is not None else None
    parts = found.parts if isinstance(found, GroupStarts) else ((),)
    made = list(records.decided_group(state, domain, parts))
    return made[min(record.part, len(made)) - 1]


def scores_before(state: AllocatorState, record: Decided, pod_uid: str) -> PodScores | None:
    """The best nodes for a pod when the record was written; the state is as for ``recompute``.

    None: the record does not decide the pod, or its decision reads no order of scores.
    """
    domain = state.domains[record.domain]
    domain.unwritten = record.learned
    made: list[PodDecision] = []
    found: PodScores | None = None
    for decision in record.pods:
        pod = state.facts.pods.get(decision.pod_uid)
        if decision.pod_uid == pod_uid:
            want = wanted(state, domain.name, pod) if pod else ()
            if isinstance(want, PodRequest) and find(state, domain, want) is not None:
                found = scores_of(state, domain, want)
            break
        if again := _decide_again(state, domain, decision):
            made.append(again)
    _undo(state, domain, records.decided(state, domain, tuple(made)))
    return found


def reasons(state: AllocatorState, pod_uid: str) -> tuple[Reason, ...]:
    """Why a pending pod fits nowhere now. Empty if it fits, or if dray does not decide it: it is
    bound or ending, or one of its claims is missing or has a reservation."""
    pod = state.facts.pods.get(pod_uid)
    domain = state.domains.get(pod.pool) if pod else None
    if pod is None or domain is None or not state.is_decidable(pod):
        return ()
    if (why := _group_reasons(state, domain, pod)) is not None:
        return why
    want = wanted(state, domain.name, pod)
    if not isinstance(want, PodRequest):
        return want
    choice = find(state, domain, want)
    if choice is None:
        return explain_pod(state, domain, want)
    return too_large(state.options, size_bytes(decision_of(domain, want, choice)))


def _group_reasons(
    state: AllocatorState, domain: SchedulingDomain, pod: Pod
) -> tuple[Reason, ...] | None:
    """Why the group of a pod does not start; None if the pod is decided alone."""
    if pod.member is None:
        return None
    key = pod.member.group
    if reasons := undecidable(state, domain, key):
        return reasons
    if membership(state, state.facts.groups.groups[key]).is_met:
        return None
    found = decide_group(state, domain, key)
    return found.reasons if isinstance(found, GroupWaits) else ()


def _fold(state: AllocatorState, event: Event) -> list[Effect]:
    if type(event) is RecordSeen:  # Most events are facts and records; a match costs more.
        return fold_record(state, event)
    match event:
        case Subscribe():
            return subscribe(state, event)
        case EarlierFact():
            fold_earlier(state, event)
        case EarlierFactsRead():
            earlier_read(state, event)
        case FactsLost():
            state.forget_facts()
        case RecordUndecodable():
            stop_log(state, event)
        case LogShortened():
            forget_log(state, event)
        case LogLost():
            return lose_log(state, event)
        case Serve() | StandBy() | AppendFailed():
            _serving(state, event)
    return []


def _fold_fact(state: AllocatorState, event: FactSeen) -> list[Effect]:
    """Apply a fact, unless it was applied before."""
    if event.sequence <= state.facts.position:
        return []
    state.facts.position = event.sequence
    state.facts.whole = event.whole
    return state.apply(event.sequence, event.fact)


def _serving(state: AllocatorState, event: Serve | StandBy | AppendFailed) -> None:
    domain = state.domains.get(event.domain)
    if domain is None:
        return
    match event:
        case StandBy():
            domain.serving_since = None
            domain.queue.clear_active()
        case Serve(epoch=epoch, last_sequence=last) if epoch == domain.epoch:
            forget_appended(state, domain)
            domain.forget_learned()
            domain.serving_since = last
            domain.term += 1
            domain.queue.request_full_scan()
            domain.groups.touch_all()
            domain.settle = True
            domain.asked.clear()
            state.busy_domains.add(domain)
        case AppendFailed(epoch=epoch) if epoch == domain.epoch:
            forget_appended(state, domain)
            domain.serving_since = None
        case _:
            pass


def _checked(state: AllocatorState, ready: int) -> list[Effect]:
    """Report devices that are allocated beyond their capacity, once all facts are known.
    ``ready``: at least this many domains are known to have all of their facts.

    A device is checked again later while appends are not confirmed (they may be refused), and if
    kube-scheduler allocated it: its allocation may be published before the fact that the device was
    freed.
    """
    if not state.facts.synced or (ready < len(state.domains) and not state.all_complete()):
        return []
    confirmed = not state.index.appending
    found: list[Effect] = []
    for device, suspect in tuple(islice(state.suspects.items(), _DEVICES_AT_ONCE)):
        del state.suspects[device]
        if not _is_known(state, device):
            continue
        detail = state.device_usage.double_allocation(device, state.published.cards.get(device))
        if detail and confirmed and _is_settled(state, suspect):
            found.append(DoublyAllocated(str(device), suspect.claim_uid, detail))
        elif detail:
            state.suspects[device] = suspect
    return found


def _is_settled(state: AllocatorState, suspect: Suspect) -> bool:
    """Whether everything freed before the claim's allocation is published.

    dray decides on published facts. Claims that kube-scheduler allocated are published as they are
    observed: after a time without a leader, deleted claims are published after existing ones.
    """
    ticks = state.ticks - suspect.since
    return state.is_reserved(suspect.claim_uid) or ticks >= _TICKS_UNTIL_PUBLISHED


def _is_known(state: AllocatorState, device: DeviceId) -> bool:
    """Whether this replica knows all claims that may use a device; if not, another replica checks
    the device."""
    if state.subscriptions.everything:
        return True
    card = state.published.cards.get(device)
    fact = state.facts.nodes.get(card.node if card else device.pool)
    pool = fact.node.pool or fact.node.leaving if fact is not None else ""
    return bool(pool) and state.is_caught_up(pool)


def _decide_again(
    state: AllocatorState, domain: SchedulingDomain, decision: PodDecision
) -> PodDecision | None:
    pod = state.facts.pods.get(decision.pod_uid)
    want = wanted(state, domain.name, pod) if pod and state.is_decidable(pod) else ()
    choice = find(state, domain, want) if isinstance(want, PodRequest) else None
    if not isinstance(want, PodRequest) or choice is None:
        return None
    again = decision_of(domain, want, choice)
    state.assume(domain, again)
    return again


def _groundless(record: Waiting) -> Waiting:
    """The record without reasons: the facts do not show all of its pods."""
    return msgspec.structs.replace(record, reasons=())


def _undo(state: AllocatorState, domain: SchedulingDomain, made: AnyRecord) -> None:
    appended = list(domain.appended)
    domain.forget_appended()
    for sequence, record in appended:
        domain.appended.append((sequence, record))
        domain.current.fold(sequence, record)
    state.requeue(subjects(made), domain)


def _as_written_by(made: AnyRecord, record: AnyRecord) -> AnyRecord:
    """``made`` with the name, times and positions of the writer, which are not computed again."""
    same = {"writer": record.writer, "now_unix_s": record.now_unix_s}
    same["facts_sequence"] = record.facts_sequence
    again: AnyRecord = msgspec.structs.replace(made, **same)
    if isinstance(again, Decided) and isinstance(record, Decided):
        took = {pod.pod_uid: pod.took_us for pod in record.pods}
        pods = tuple(
            msgspec.structs.replace(pod, took_us=took.get(pod.pod_uid, 0)) for pod in again.pods
        )
        again = msgspec.structs.replace(again, pods=pods)
    return again
