"""Bounds of what a group needs and of what the nodes have, without a search."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dray.api.claims import ClaimSpec
from dray.api.names import DEVICE_CLASS
from dray.api.quantities import InvalidQuantityError, Quantity, parse_quantity
from dray_allocator.gangs.membership import Membership
from dray_allocator.gangs.placements import Member
from dray_allocator.nodes.plan import filter_plan
from dray_allocator.nodes.slots import SlotCounter
from dray_allocator.nodes.table import NodeTable
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.placement.schedule import may_use_other_devices
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

_MOST_COUNTERS = 64
_NONE = Quantity(0)
_ROUNDED = 1 + 1e-9


def needed_slots(found: Membership, members: Sequence[Member]) -> Mapping[bytes, int]:
    """By kind of pods, how many of the members must at least be placed.

    With fewer, even all other pods of the group would not be enough for its minimum.
    """
    lacks = found.running.lacks - len(found.riders)
    by_kind: dict[bytes, int] = {}
    tasks: dict[tuple[bytes, str], int] = {}
    for one in members:
        by_kind[one.kind] = by_kind.get(one.kind, 0) + 1
        tasks[one.kind, one.task] = tasks.get((one.kind, one.task), 0) + 1
    of_task: dict[str, int] = {}
    for (_, task), number in tasks.items():
        of_task[task] = of_task.get(task, 0) + number
    lacking_tasks = _lacking_tasks(found)
    needed: dict[bytes, int] = {}
    for kind, number in by_kind.items():
        if not kind:
            continue
        least = lacks - (len(members) - number)
        of_tasks = 0
        for task, lacking in lacking_tasks.items():
            others = of_task.get(task, 0) - tasks.get((kind, task), 0)
            of_tasks += max(0, lacking - others)
        needed[kind] = max(least, of_tasks)
    return {kind: number for kind, number in needed.items() if number > 0}


def _lacking_tasks(found: Membership) -> Mapping[str, int]:
    """By task with a minimum, how many members with devices it lacks; below 0: it has more."""
    lacking = {
        task: minimum - found.running.task(task)
        for task, minimum in found.group.task_minimums.items()
    }
    for pod in found.riders:
        if pod.member is not None and pod.member.task in lacking:
            lacking[pod.member.task] -= 1
    return lacking


class ShortCapacity(NamedTuple):
    """A capacity that the devices lack for a group, which needs at least ``asked``."""

    name: str
    asked: Quantity
    free: Quantity
    total: Quantity
    """What would be free if no device were in use."""


def short_capacities(
    state: AllocatorState, domain: SchedulingDomain, found: Membership, members: Sequence[Member]
) -> Iterator[ShortCapacity]:
    """Find the capacities that dray's devices lack for a group with several kinds of pods."""
    table = state.tables.of(domain.name)
    if len({one.kind for one in members}) < 2 or not table.has_card.any():
        return
    if any(may_use_other_devices(state, one.request) for one in members):
        return
    totals = card_totals(table)
    cards = np.bincount(table.kind[table.has_card], minlength=len(totals)).tolist()
    amounts = [_amounts_of(one) for one in members]
    for name in sorted(dict.fromkeys(name for one in amounts for name in one)):
        if not any(name in one for one in totals):
            continue  # No device has it: users may ask for any.
        asked = [one.get(name, _NONE) for one in amounts]
        least_nano = _least_together(found, members, [one.nano for one in asked])
        free_nano = free_capacity(table, name)
        if least_nano > free_nano * _ROUNDED:
            total = sum(
                one.get(name, 0) * number for one, number in zip(totals, cards, strict=True)
            )
            is_binary = any(one.binary for one in asked)
            found_nano = (least_nano, int(free_nano), total)
            yield ShortCapacity(name, *(Quantity(nano, is_binary) for nano in found_nano))


def card_totals(table: NodeTable) -> list[Mapping[str, int]]:
    """By kind of card, its total of each capacity, in billionths."""
    kinds = table.card_kinds
    return [kinds.example(kind).shape.totals for kind in range(kinds.count)]


def free_capacity(table: NodeTable, name: str) -> float:
    """How much of a capacity is left on all cards together, in billionths, rounded."""
    free = table.free[table.dimension(name)][: len(table.has_card)][table.has_card]
    return float(np.maximum(free, 0.0).sum())


def _least_together(found: Membership, members: Sequence[Member], amounts: Sequence[int]) -> int:
    """The least that these members ask for together if enough of them start."""
    by_task: dict[str, list[int]] = {}
    for member, amount in zip(members, amounts, strict=True):
        by_task.setdefault(member.task, []).append(amount)
    of_tasks = sum(
        _sum_of_least(by_task.get(task, ()), number)
        for task, number in _lacking_tasks(found).items()
    )
    return max(of_tasks, _sum_of_least(amounts, found.running.lacks - len(found.riders)))


def _sum_of_least(amounts: Sequence[int], number: int) -> int:
    return sum(sorted(amounts)[: max(0, number)])


def _amounts_of(member: Member) -> Mapping[str, Quantity]:
    found: dict[str, Quantity] = {}
    for claim in () if member.is_sharing else member.request.claims:
        for name, amount in least_amounts(claim.spec).items():
            found[name] = amount + found.get(name, _NONE)
    return found


def least_amounts(spec: ClaimSpec) -> Mapping[str, Quantity]:
    """The least amount of each capacity that a claim asks for, whatever devices it gets."""
    exact = (
        one
        for one in spec.requests
        if one.device_class == DEVICE_CLASS and one.mode == "ExactCount" and not one.admin_access
    )
    found: dict[str, Quantity] = {}
    try:
        for one in exact:
            for name, text in one.capacity.items():
                amount = parse_quantity(text)
                asked = Quantity(one.count * amount.nano, amount.binary)
                found[name] = asked + found.get(name, _NONE)
    except InvalidQuantityError:
        return {}
    return found


def slots_of(
    state: AllocatorState, domain: SchedulingDomain, request: PodRequest
) -> SlotCounter | None:
    """The up-to-date counter of slots for pods like this one; None if the node table alone does not
    decide them."""
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
