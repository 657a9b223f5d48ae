"""Applies what is read from decision logs; decides nothing."""

from dray.messages.checkpoints import is_first_part
from dray.messages.decisions import AnyRecord, Checkpoint, Released
from dray_allocator.state.domain import SchedulingDomain, subjects
from dray_allocator.state.facts import Changes
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import (
    Effect,
    Follow,
    LogLost,
    LogShortened,
    RecordSeen,
    RecordUndecodable,
    StopServing,
)


def fold_record(state: AllocatorState, event: RecordSeen) -> list[Effect]:
    """Apply a record of the followed epoch, unless it was applied before."""
    domain = state.domains.get(event.domain)
    if domain is None or domain.epoch != event.epoch:
        return []
    is_first = domain.confirmed.sequence == 0
    if is_first and 1 < domain.start == event.sequence and not is_first_part(event.record):
        # The log lost its newest records, this checkpoint among them, and has grown again.
        domain.start = 1
        return [Follow(_begin_again(state, domain).name, domain.epoch)]
    effects: list[Effect] = []
    if 0 < domain.confirmed.sequence < event.sequence - 1:
        # The records between were trimmed: the log begins with a checkpoint now.
        domain = _begin_again(state, domain)
        effects.append(StopServing(domain.name))
    if event.sequence > domain.confirmed.sequence:
        _fold_next(state, domain, event.sequence, event.record)
    domain.read = (domain.read or not event.more) and domain.confirmed.is_whole
    return effects


def _fold_next(
    state: AllocatorState, domain: SchedulingDomain, sequence: int, record: AnyRecord
) -> None:
    if domain.appended and domain.appended[0] == (sequence, record):
        domain.appended.popleft()
        if not domain.appended:
            state.index.appending.pop(domain.name, None)
        domain.confirmed.fold(sequence, record)
        return
    forget_appended(state, domain)
    domain.confirmed.fold(sequence, record)
    state.requeue(domain.current.fold(sequence, record), domain)


def _begin_again(state: AllocatorState, known: SchedulingDomain) -> SchedulingDomain:
    """Forget what was read from a log; its epoch is the same."""
    domain = SchedulingDomain(
        known.name, known.epoch, unnamed=known.unnamed, renamed=known.renamed, start=known.start
    )
    state.replace(domain)
    return domain


def forget_log(state: AllocatorState, event: LogShortened) -> None:
    """The log lost its newest records; the facts show what was executed."""
    known = state.domains.get(event.domain)
    if known is not None and known.epoch == event.epoch:
        _begin_again(state, known)


def lose_log(state: AllocatorState, event: LogLost) -> list[Effect]:
    """Mark the log's stream as missing. The facts may have named the next epoch already."""
    domain = state.domains.get(event.domain)
    if domain is None or domain.epoch != event.epoch:
        return []
    forget_appended(state, domain)
    domain.lost = True
    return state.follow(domain.name, domain.renamed, 1) if domain.renamed else []


def stop_log(state: AllocatorState, event: RecordUndecodable) -> None:
    """Decide nothing more in this epoch: a record of the log can't be decoded."""
    domain = state.domains.get(event.domain)
    if domain is None or domain.epoch != event.epoch:
        return
    forget_appended(state, domain)
    domain.serving_since = None
    domain.undecodable = event.why
    state.index.undecodable[domain.name] = None


def forget_appended(state: AllocatorState, domain: SchedulingDomain) -> None:
    """Return to the confirmed log: another replica may have appended."""
    forgotten = domain.forget_appended() if domain.appended else []
    state.index.appending.pop(domain.name, None)
    # Parts of a decision that were read back no longer count without the other parts.
    for record in (*forgotten, *(domain.current.group_parts.parts if forgotten else ())):
        state.requeue(subjects(record), domain)
        if isinstance(record, Released):  # Its reservations are assumed again.
            claims = (domain.current.claims.get(one.claim_uid) for one in record.releases)
            pods = tuple([one.pod_uid for one in claims if one is not None])
            pods = (*pods, *domain.current.held_nodes)
            state.requeue(Changes(tuple(domain.current.held_claims), pods), domain)
        elif isinstance(record, Checkpoint):  # What it left out is known again.
            known = (*domain.current.claims, *domain.current.held_claims)
            pods = (*domain.current.pods, *domain.current.held_nodes)
            state.requeue(Changes(known, pods), domain)
