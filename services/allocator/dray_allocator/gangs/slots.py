"""Bounds of what a group needs and what the nodes have, without a search."""

from collections.abc import Mapping, Sequence

from dray_allocator.gangs.membership import Membership
from dray_allocator.gangs.placements import Member
from dray_allocator.nodes.plan import filter_plan
from dray_allocator.nodes.slots import SlotCounter
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.placement.schedule import may_use_other_devices
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

_MOST_COUNTERS = 64


def needed_slots(found: Membership, members: Sequence[Member]) -> Mapping[bytes, int]:
    """By kind of pods, how many of these must be placed at least.

    All others of the group would not be enough for its minimum.
    """
    group, lacks = found.group, found.running.lacks - len(found.riders)
    by_kind: dict[bytes, int] = {}
    tasks: dict[tuple[bytes, str], int] = {}
    for one in members:
        by_kind[one.kind] = by_kind.get(one.kind, 0) + 1
        tasks[one.kind, one.task] = tasks.get((one.kind, one.task), 0) + 1
    of_task: dict[str, int] = {}
    for (_, task), number in tasks.items():
        of_task[task] = of_task.get(task, 0) + number
    riders: dict[str, int] = {}
    for pod in found.riders:
        task = pod.member.task if pod.member is not None else ""
        riders[task] = riders.get(task, 0) + 1
    needed: dict[bytes, int] = {}
    for kind, number in by_kind.items():
        if not kind:
            continue
        least = lacks - (len(members) - number)
        of_tasks = 0
        for task, minimum in group.task_minimums.items():
            others = of_task.get(task, 0) - tasks.get((kind, task), 0)
            lacking = minimum - found.running.task(task) - riders.get(task, 0)
            of_tasks += max(0, lacking - others)
        needed[kind] = max(least, of_tasks)
    return {kind: number for kind, number in needed.items() if number > 0}


def slots_of(
    state: AllocatorState, domain: SchedulingDomain, request: PodRequest
) -> SlotCounter | None:
    """The counter of pods like this one, up to date; None if the node table does not decide them
    alone."""
    if request.pattern.in_full or not request.ordinary or request.pattern.named_nodes is not None:
        return None
    if may_use_other_devices(state, request):
        return None
    table, counters = state.tables.of(domain.name), domain.groups.counters
    known = counters.pop(request.pattern.signature, None)
    if known is None or known.table is not table:
        while len(counters) >= _MOST_COUNTERS:
            del counters[next(iter(counters))]
        plan = filter_plan(
            table,
            state.selectors,
            request.pattern.asks,
            request.pod.needs,
            alone=request.pattern.alone,
        )
        known = SlotCounter(table, plan)
    counters[request.pattern.signature] = known
    known.catch_up(state.selectors)
    return known
