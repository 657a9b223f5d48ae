"""What fails on devices, counted: each kind of device is judged once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from dray.cel.errors import CelError
from dray.cel.evaluate import ClauseResult, compile
from dray.domain.dra.asks import Ask
from dray.reasons import Reason
from dray_allocator.lane.account import Account, Group, GroupKey
from dray_allocator.lane.seen import HELD, ILL
from dray_allocator.state import AllocatorState
from dray_allocator.structured.candidates import Candidate
from dray_allocator.structured.capacity import demand
from dray_allocator.structured.errors import AllocationError
from dray_allocator.structured.rules import Rules
from dray_allocator.structured.selectors import view_of
from dray_allocator.structured.taking import untolerated

MOST_GROUPS: Final = 512
"""Where devices differ more than that in what matters to a pod, those beyond are not counted."""
Cause = tuple[int, str, str, str]
"""Place in the order of reasons, kind, what, detail."""


@dataclass(slots=True)
class Devices:
    """The devices that nodes see, in groups: those of one node alone once per node, others once."""

    state: AllocatorState
    rules: Rules
    groups: dict[GroupKey, Group] = field(default_factory=dict)
    _shared: dict[str, None] = field(default_factory=dict)
    """Slices of no single node that are counted already."""

    @property
    def found(self) -> int:
        """How many there are."""
        return sum(group.count for group in self.groups.values())

    def see(self, account: Account, nodes: int) -> None:
        """Count what so many nodes see that are alike."""
        self._add(account.own, nodes)
        for name, groups in account.shared.items():
            if name not in self._shared:
                self._shared[name] = None
                self._add(groups, 1)

    def _add(self, groups: dict[GroupKey, Group], times: int) -> None:
        for key, group in groups.items():
            if key in self.groups or len(self.groups) < MOST_GROUPS:
                mine = self.groups.setdefault(key, Group(group.one, group.use))
                mine.count += group.count * times

    def reasons(self, ask: Ask) -> Iterator[Reason]:
        """Clauses of the selectors, then what fails on the devices that they take."""
        matching = list(self.groups.values())
        of_class = self.state.facts.classes[ask.device_class]
        for expression in (*of_class.selectors, *ask.selectors):
            results = [(group, self._clauses(expression, group.one)) for group in matching]
            yield from _told(results)
            matching = [group for group, clauses in results if all(c.value for c in clauses)]
        counts: dict[Cause, int] = {}
        for group in matching:
            for cause in self._causes(ask, group):
                counts[cause] = counts.get(cause, 0) + group.count
        total = sum(group.count for group in matching)
        for cause in sorted(counts):
            _, kind, what, detail = cause
            yield Reason(kind, what, counts[cause], total, detail=detail)

    def _clauses(self, expression: str, one: Candidate) -> Sequence[ClauseResult]:
        card = self.state.fleet.card(one.id)
        if card is not None and not card.fault:
            return self.state.selectors.explain(expression, card)
        try:
            program = compile(expression, self.rules.language)
        except CelError as error:
            return (ClauseResult(expression, None, str(error).splitlines()[0]),)
        return program.explain(view_of(one, shows_sharing=True))

    def _causes(self, ask: Ask, group: Group) -> Iterator[Cause]:
        device, use = group.one.device, group.use
        if use == ILL:
            yield 0, "in-use", "healthy", ""
        taint = untolerated(device, ask)
        if taint is not None:
            what = f"toleration of device taint {taint.key}={taint.value}:{taint.effect}"
            yield 1, "taint", what, ""
        if device.binding_conditions and not self.rules.device_binding:
            detail = "the API server or the claim-controller does not know them"
            yield 2, "unsupported", "without binding conditions, where dray binds", detail
        is_shared = device.allow_multiple_allocations
        if not ask.admin_access and (use == HELD or (isinstance(use, tuple) and not is_shared)):
            yield 3, "in-use", "not in use", ""
        elif use != ILL:
            yield from self._of_capacity(ask, group)

    def _of_capacity(self, ask: Ask, group: Group) -> Iterator[Cause]:
        device, use = group.one.device, group.use
        used = dict(use) if isinstance(use, tuple) and device.allow_multiple_allocations else {}
        try:
            wanted = demand(ask.capacity, device.capacity, self.rules)
        except AllocationError as error:
            yield 4, "capacity", "amounts that make sense", str(error)
            return
        if wanted is None:
            asked = ", ".join(f"{key} {text}" for key, text in sorted((ask.capacity or {}).items()))
            detail = "more than the device has, or not a capacity of it"
            yield 5, "capacity", f"publishes {asked}", detail
            return
        for name, taken, total in wanted.rows:
            if taken + used.get(name, 0) > total:
                yield 6, "capacity", f"free {name} ≥ {wanted.amounts[name]}", ""


def _told(results: Sequence[tuple[Group, Sequence[ClauseResult]]]) -> Iterator[Reason]:
    """False clauses, and those that can't be evaluated where none is false."""
    false: dict[tuple[int, str], int] = {}
    failed: dict[tuple[int, str], int] = {}
    detail: dict[str, str] = {}
    for group, clauses in results:
        no = [(at, one) for at, one in enumerate(clauses) if one.value is False]
        for at, clause in no:
            false[at, clause.text] = false.get((at, clause.text), 0) + group.count
        for at, clause in () if no else enumerate(clauses):
            if clause.value is None:
                failed[at, clause.text] = failed.get((at, clause.text), 0) + group.count
                told = detail.setdefault(clause.text, clause.error)
                detail[clause.text] = min(told, clause.error)
    total = sum(group.count for group, _ in results)
    for at, text in sorted(false):
        yield Reason("clause", text, false[at, text], total)
    for at, text in sorted(failed):
        yield Reason("clause-error", text, failed[at, text], total, detail=detail[text])
