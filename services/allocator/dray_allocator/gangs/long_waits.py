"""Nodes that are held for a pod or PodGroup that has waited long, so that later pods do not take
its place for ever. Pure.

Nodes are held for at most one pod or group of a pool at a time; the namespaces take turns. As many
nodes are held as the pod or group needs if nothing else runs there; those with the lowest load come
first. The hold ends when the pod or group starts, when it no longer waits, or after
``node_hold_s``. Then the pool rests, so that on average at most a quarter of its nodes is held.
Only the first pod of each signature is looked at: the others need the same. Nothing is held for
pods that ask for no device: the devices of held nodes would be idle meanwhile.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np

from dray.api.pods import GroupKey, Pod
from dray.messages.decisions import NodeHold
from dray_allocator.gangs.decision import Needs, needs_of_group
from dray_allocator.gangs.slots import slots_of
from dray_allocator.placement.pod_request import PodRequest, wanted
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.scheduling_queue import QueueKey
from dray_allocator.state.state import AllocatorState

MOST_NODES: Final = 512
"""The maximum number of held nodes: each decision on pods that may use them looks at them all."""
_LOOKED_AT_TOGETHER: Final = 8
"""For how many pods and groups nodes are looked for at once: each needs a look at all nodes."""


class _Waiter(NamedTuple):
    """A pod or group that waits."""

    turn: int
    """The place of its namespace in the order of turns; below 0: it had no turn."""
    key: QueueKey
    namespace: str
    group: GroupKey | None
    """None: a pod."""
    since_unix_s: float

    @property
    def uid(self) -> str:
        """The UID of the pod or group."""
        return self.key[2]


def expired_node_hold(state: AllocatorState, domain: SchedulingDomain) -> NodeHold | None:
    """The end of the pool's hold of nodes, if it ends now. A hold that has not begun counts as
    ended: a clock was wrong."""
    hold, now_unix_s = domain.current.node_hold, state.facts.now_unix_s
    if hold is None:
        return None
    is_due = hold.since_unix_s <= now_unix_s < hold.until_unix_s
    if is_due and _waits(domain, hold) and _has_its_nodes(state, domain, hold):
        return None
    return msgspec.structs.replace(hold, nodes=())


def _waits(domain: SchedulingDomain, hold: NodeHold) -> bool:
    """Whether the pod or group still waits, as far as that is known now."""
    if hold.group is None:
        return hold.uid in domain.queue.pending
    groups = domain.groups
    return any(hold.group in one for one in (groups.pending, groups.touched, groups.postponed))


def _has_its_nodes(state: AllocatorState, domain: SchedulingDomain, hold: NodeHold) -> bool:
    return not domain.ticked or all(state.facts.serves(one, domain.name) for one in hold.nodes)


def next_node_hold(state: AllocatorState, domain: SchedulingDomain) -> NodeHold | None:
    """The hold of nodes that begins now, if there is one."""
    waits, options, now_unix_s = domain.groups.long_waits, state.options, state.facts.now_unix_s
    if not options.node_hold_s or not waits.is_due(now_unix_s):
        return None
    groups = domain.groups.pending
    count = len(domain.queue.pending) + len(groups)
    waits.forget_others(domain.queue.pending, (key[2] for key in groups.values()), count)
    if domain.current.node_hold is not None or now_unix_s < waits.rests_until_unix_s:
        return None
    long_waiting = {
        one.uid: one
        for one in sorted(_waiters(state, domain))
        if now_unix_s - one.since_unix_s >= options.node_hold_after_s
        and not waits.is_paused(one.uid, now_unix_s)
    }
    for uid in waits.first(tuple(long_waiting), _LOOKED_AT_TOGETHER):
        waits.take_turn(long_waiting[uid].namespace)
        needs = _needs(state, domain, long_waiting[uid])
        if nodes := _nodes_for(state, domain, needs):
            return _node_hold(state, long_waiting[uid], needs, nodes)
        waits.without_nodes[uid] = None
    return None


def _waiters(state: AllocatorState, domain: SchedulingDomain) -> Iterator[_Waiter]:
    """The groups that fit nowhere, and the first pod of each signature that fits nowhere; if there
    are many, only some at each look."""
    queue, groups, waits = domain.queue, domain.groups, domain.groups.long_waits
    turns = {namespace: turn for turn, namespace in enumerate(waits.turns)}
    now_unix_s = state.facts.now_unix_s
    waiting: list[GroupKey | bytes] = [*groups.unschedulable, *queue.unschedulable_signatures()]
    for one in waits.some(waiting):
        if isinstance(one, bytes):
            uid = queue.first_unschedulable(one)
            if uid is None or not _needs_devices(state, state.facts.pods[uid]):
                continue
            namespace, key = state.facts.pods[uid].namespace, queue.pending[uid]
        else:
            namespace, key = one.namespace, groups.pending[one]
        group = None if isinstance(one, bytes) else one
        since_unix_s = waits.since.get(key[2], now_unix_s)
        yield _Waiter(turns.get(namespace, -1), key, namespace, group, since_unix_s)


def _needs_devices(state: AllocatorState, pod: Pod) -> bool:
    return any(claim.spec.requests for claim in state.facts.claims_of(pod) or ())


def _needs(state: AllocatorState, domain: SchedulingDomain, waiter: _Waiter) -> Needs:
    """How many pods of each kind must find room at once; empty if none, or if it is not known."""
    if waiter.group is not None:
        return needs_of_group(state, domain, waiter.group)
    request = wanted(state, domain.name, state.facts.pods[waiter.uid])
    return [(request, 1)] if isinstance(request, PodRequest) else []


def _nodes_for(state: AllocatorState, domain: SchedulingDomain, needs: Needs) -> tuple[str, ...]:
    """Nodes that have room for these pods if nothing else runs there; empty if there are too few
    nodes, or if too many are needed."""
    chosen: dict[str, None] = {}
    for request, number in needs:
        counter = slots_of(state, domain, request)
        if counter is None:
            return ()
        table, slots, lacking = counter.table, counter.potentials(), number
        for row in np.lexsort((table.tie[: len(slots)], table.mean_load[: len(slots)])).tolist():
            if lacking <= 0:
                break
            if slots[row] and table.names[row] not in chosen:
                chosen[table.names[row]] = None
                lacking -= int(slots[row])
        if lacking > 0 or len(chosen) > MOST_NODES:
            return ()
    return tuple(chosen)


def _node_hold(
    state: AllocatorState, waiter: _Waiter, needs: Needs, nodes: tuple[str, ...]
) -> NodeHold:
    (priority, _, uid), now_unix_s = waiter.key, state.facts.now_unix_s
    name = needs[0][0].pod.name if waiter.group is None else waiter.group.name
    return NodeHold(
        uid=uid,
        namespace=waiter.namespace,
        name=name,
        group=waiter.group,
        priority=-priority,
        since_unix_s=now_unix_s,
        until_unix_s=now_unix_s + state.options.node_hold_s,
        nodes=nodes,
    )
