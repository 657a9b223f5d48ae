"""The pure core: events in, effects out. Nothing else changes the state.

``recompute`` and ``reasons`` answer the questions of replay and of ``dray explain`` from a
state into which facts and records were folded by ``handle``.
"""

import msgspec

from dray.api.devices import DeviceId
from dray.messages.decisions import (
    AnyRecord,
    Checkpoint,
    Decided,
    NodeLeft,
    PodDecision,
    Released,
    Waiting,
)
from dray.reasons import Reason
from dray_allocator.core.pool_subscriptions import earlier_read, fold_earlier, subscribe
from dray_allocator.cycle import records
from dray_allocator.cycle.decision import decision_of, too_large
from dray_allocator.cycle.ended_reservations import ends_of, leaving
from dray_allocator.cycle.schedule import explain_pod, find
from dray_allocator.cycle.step import Step
from dray_allocator.devices.device_requests import oversold
from dray_allocator.placement.pod_request import PodRequest, wanted
from dray_allocator.state.apply import (
    fold_fact,
    fold_record,
    forget_appended,
    forget_facts,
    forget_log,
    lose_log,
    stop_log,
    subjects,
)
from dray_allocator.state.domain import Domain
from dray_allocator.state.state import AllocatorState, Suspect
from dray_allocator.values.events import (
    READ,
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
"""Until facts that were found together are all published. A term's ticks begin after its first
publication. Later ones come between two publications, and one fact may be in the first of these
and the other in the second."""


def handle(state: AllocatorState, event: Event) -> list[Effect]:
    """Take one event in and answer it.

    The same events give the same state and the same effects, but for ``took_us``. Where
    ``state.unfinished`` is true afterwards, ``Continue`` goes on; it may be handed in after
    other events.
    """
    effects = _fold(state, event)
    if is_followed_by_more(event):
        return effects
    goes_on = isinstance(event, Continue)
    for domain in tuple(state.domains.values()):
        if state.ready(domain):
            effects += Step(state, domain, goes_on=goes_on).take()
    return [*effects, *_checked(state)]


def is_followed_by_more(event: Event) -> bool:
    """Whether nothing is decided in answer: more of its kind is at hand, or is being read."""
    return isinstance(event, EarlierFact) or (isinstance(event, READ) and event.more)


def is_searching(state: AllocatorState) -> bool:
    """Whether all that ``Continue`` would go on with are long searches, for which others need not
    wait."""
    is_active = any(
        domain.queue.has_active and state.ready(domain) for domain in state.domains.values()
    )
    return state.unfinished and not is_active


def recompute(state: AllocatorState, record: AnyRecord) -> AnyRecord:
    """The record that this state's replica would have written in the place of ``record``.

    The state must have folded every earlier record of the log and the facts up to
    ``record.facts_sequence``; it is left as it was. When a release or a checkpoint is due is
    the writer's time to serve, so only what it says is computed again. ``opened`` comes back
    as it is.

    Raises:
        KeyError: the facts show no such domain.
    """
    domain = state.domains[record.domain]
    match record:
        case Decided(pods=pods):
            domain.unwritten = record.learned
            again = [_decide_again(state, domain, pod) for pod in pods]
            made: AnyRecord = records.decided(state, domain, tuple(p for p in again if p))
            _undo(state, domain, made)
        case Waiting(pod_uid=pod_uid):
            pod = state.facts.pods.get(pod_uid)
            told = reasons(state, pod_uid)
            made = records.waiting(state, domain, pod, told) if pod else _groundless(record)
        case Released(releases=releases):
            made = records.released(state, domain, ends_of(state, domain, releases))
        case NodeLeft(node=node):
            found = dict(leaving(state, domain))
            made = records.node_left(state, domain, node, found.get(node, -1))
        case Checkpoint():
            made = records.checkpoint(state, domain)
        case _:
            return record
    return _as_written_by(made, record)


def reasons(state: AllocatorState, pod_uid: str) -> tuple[Reason, ...]:
    """Why a pod that waits gets nothing now; empty if a decision would place it, or if it is
    not dray's to decide upon (bound, ending, or a claim of it is missing or in flight)."""
    pod = state.facts.pods.get(pod_uid)
    domain = state.domains.get(pod.pool) if pod else None
    if pod is None or domain is None or not state.is_decidable(pod):
        return ()
    want = wanted(state, domain.name, pod)
    if not isinstance(want, PodRequest):
        return want
    choice = find(state, domain, want)
    if choice is None:
        return explain_pod(state, domain, want)
    return too_large(state.rules, decision_of(domain, want, choice))


def _fold(state: AllocatorState, event: Event) -> list[Effect]:
    match event:
        case FactSeen():
            return fold_fact(state, event)
        case Subscribe():
            return subscribe(state, event)
        case EarlierFact():
            fold_earlier(state, event)
        case EarlierFactsRead():
            earlier_read(state, event)
        case FactsLost():
            forget_facts(state)
        case RecordSeen():
            fold_record(state, event)
        case RecordUndecodable():
            stop_log(state, event)
        case LogShortened():
            forget_log(state, event)
        case LogLost():
            return lose_log(state, event)
        case Continue():
            pass
        case _:
            _serving(state, event)
    return []


def _serving(state: AllocatorState, event: Serve | StandBy | AppendFailed) -> None:
    domain = state.domains.get(event.domain)
    if domain is None:
        return
    match event:
        case StandBy():
            domain.fence = None
            domain.queue.clear_active()
        case Serve(epoch=epoch, last_sequence=last) if epoch == domain.epoch:
            forget_appended(state, domain)
            domain.forget_learned()
            domain.fence = last
            domain.queue.request_full_scan()
            domain.settle = True
            domain.asked.clear()
        case AppendFailed(epoch=epoch) if epoch == domain.epoch:
            forget_appended(state, domain)
            domain.fence = None
        case _:
            pass


def _checked(state: AllocatorState) -> list[Effect]:
    """Devices of which more is used than they have, once the facts explain the records.

    Where appends of ours are not confirmed yet, they may be what is too much, and be refused:
    then the device is looked at again. So is one that kube-scheduler allocated: its allocation may
    be published before the fact that the device was free by then.
    """
    if not state.suspects or not state.facts.synced:
        return []
    if not all(state.complete(domain) for domain in state.domains.values()):
        return []
    confirmed = not any(domain.appended for domain in state.domains.values())
    found: list[Effect] = []
    for device, suspect in tuple(state.suspects.items()):
        if not _is_known(state, device):
            del state.suspects[device]
            continue
        detail = oversold(state.device_usage, state.published.card(device), device)
        if detail and not (confirmed and _is_settled(state, suspect)):
            continue
        if detail:
            found.append(DoublyAllocated(str(device), suspect.claim_uid, detail))
        del state.suspects[device]
    return found


def _is_settled(state: AllocatorState, suspect: Suspect) -> bool:
    """Whether all that was freed before the claim's allocation is published.

    What dray decided builds on facts that were published. Others' claims are published as they
    are found: after a time without a leader, one that is gone comes after all that exist."""
    return state.is_reserved(suspect.claim_uid) or suspect.ticks >= _TICKS_UNTIL_PUBLISHED


def _is_known(state: AllocatorState, device: DeviceId) -> bool:
    """Whether all that may use a device is known here; another replica looks at what isn't."""
    if state.subscriptions.everything:
        return True
    card = state.published.card(device)
    fact = state.facts.nodes.get(card.node if card else device.pool)
    pool = fact.node.pool or fact.node.leaving if fact is not None else ""
    return bool(pool) and state.knows(pool)


def _decide_again(
    state: AllocatorState, domain: Domain, decision: PodDecision
) -> PodDecision | None:
    pod = state.facts.pods.get(decision.pod_uid)
    want = wanted(state, domain.name, pod) if pod and state.is_decidable(pod) else ()
    choice = find(state, domain, want) if isinstance(want, PodRequest) else None
    if not isinstance(want, PodRequest) or choice is None:
        return None
    again = decision_of(domain, want, choice)
    state.count(domain, again)
    return again


def _groundless(record: Waiting) -> Waiting:
    """No reasons are reported for a pod that the facts don't show."""
    return msgspec.structs.replace(record, reasons=())


def _undo(state: AllocatorState, domain: Domain, made: AnyRecord) -> None:
    appended = list(domain.appended)
    domain.forget_appended()
    for sequence, record in appended:
        domain.appended.append((sequence, record))
        domain.current.fold(sequence, record)
    state.touch(subjects(made))


def _as_written_by(made: AnyRecord, record: AnyRecord) -> AnyRecord:
    """With what the writer measured and what is no choice: name, time, position."""
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
