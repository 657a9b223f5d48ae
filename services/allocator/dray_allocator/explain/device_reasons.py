"""Why devices don't fit a request, by equivalence classes of all devices that nodes see."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dray.api.claims import DeviceRequest
from dray.api.devices import Capacity, Device
from dray.api.quantities import parse_quantity
from dray.cel.device import view_of
from dray.cel.errors import CelError
from dray.cel.eval.program import ClauseResult, compile
from dray.reasons import Reason, not_enough
from dray_allocator.devices.allocation_state import untolerated
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.capacity import demand
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.percentages import PHYSICAL, Share, in_percent
from dray_allocator.devices.published_capacity import amount_of
from dray_allocator.devices.visible_devices import UNHEALTHY, WHOLE
from dray_allocator.devices.visible_pools import Group, GroupKey, VisiblePools
from dray_allocator.explain import formatting
from dray_allocator.explain.failure_counts import FailureCounts, Rank, Shortfall
from dray_allocator.explain.representative_devices import RepresentativeDevices
from dray_allocator.explain.suggest import suggest
from dray_allocator.placement.pod_claims import PodClaims
from dray_allocator.state.state import AllocatorState

_MOST_GROUPS: Final = 512
"""The maximum number of groups of devices; further ones are ignored."""
Cause = tuple[int, str, str, str]
"""Position in the order of reasons, kind, what, detail."""
ClauseResults = Mapping[GroupKey, Sequence[Sequence[ClauseResult]]]
"""By group of devices and by selector, the results of its clauses."""


class DeviceReasons:
    """The reasons, from groups of equal devices. A device of several nodes counts once."""

    def __init__(
        self, state: AllocatorState, pod: PodClaims, representatives: RepresentativeDevices
    ) -> None:
        self.groups: dict[GroupKey, Group] = {}
        """In the order of the nodes."""
        self._state = state
        self._version = pod.version
        self._requested = pod.requested_capacity()
        self._representatives = representatives
        self._shared: dict[str, None] = {}
        """Slices for several nodes that are counted already."""

    @property
    def found(self) -> int:
        """The number of devices."""
        return sum(group.count for group in self.groups.values())

    def add(self, pools: VisiblePools, node: str, nodes: int) -> None:
        """Count the devices of a class of nodes. Reasons name the devices of ``node``."""
        self._add(pools.own, node, nodes)
        for name, groups in pools.shared.items():
            if name not in self._shared:
                self._shared[name] = None
                self._add(groups, node, 1)

    def _add(self, groups: dict[GroupKey, Group], node: str, times: int) -> None:
        for key, group in groups.items():
            if key in self.groups or len(self.groups) < _MOST_GROUPS:
                mine = self.groups.setdefault(key, Group(key, group.one))
                mine.count += group.count * times
                self._representatives.first(key, node)

    def reasons(self, ask: DeviceRequest, share: Share) -> Iterator[Reason]:
        """The selectors' clauses that fail, then the other causes on the devices that match."""
        of_class = self._state.facts.classes[ask.device_class]
        selectors = (*of_class.selectors, *ask.selectors)
        results = {
            key: [self._clauses(expression, group.one) for expression in selectors]
            for key, group in self.groups.items()
        }
        matching = list(self.groups.values())
        for at in range(len(selectors)):
            yield from self._of_clauses(matching, results, at)
            matching = [group for group in matching if all(c.value for c in results[group.key][at])]
        yield from self._of_causes(ask, dict(share), matching)

    def _clauses(self, expression: str, one: Candidate) -> Sequence[ClauseResult]:
        card = self._state.published.cards.get(one.id)
        # The group has the device as it was when its class was made; it may have changed.
        if card is not None and not card.shape.fault and _is_still(one, card.device):
            return self._state.selectors.explain(expression, card)
        try:
            program = compile(expression, self._version.language)
        except CelError as error:
            return (ClauseResult(expression, None, str(error).splitlines()[0]),)
        return program.explain(view_of(one.id.driver, one.device))

    def _of_clauses(
        self, groups: Sequence[Group], results: ClauseResults, at: int
    ) -> Iterator[Reason]:
        """The clauses of a selector that are false; if none is, those that can't be evaluated."""
        found: dict[tuple[str, int, str], FailureCounts] = {}
        for group in groups:
            misses = sum(len(_failing(clauses)) for clauses in results[group.key])
            for place, clause in _failing(results[group.key][at]):
                kind = "clause" if clause.value is False else "clause-error"
                shortfall = Shortfall((misses,), formatting.values(clause), clause.error)
                found.setdefault((kind, place, clause.text), FailureCounts()).add(group, shortfall)
        total = sum(group.count for group in groups)
        for kind, place, text in sorted(found):
            counts, detail = found[kind, place, text], ""
            if kind == "clause" and counts.count == total:
                detail = suggest(results[group.key][at][place] for group in groups)
            yield self._reason(kind, text, counts, total, detail)

    def _of_causes(
        self, ask: DeviceRequest, percents: Mapping[str, int], groups: Sequence[Group]
    ) -> Iterator[Reason]:
        """Taints, use and capacities."""
        found: dict[Cause, FailureCounts] = {}
        for group in groups:
            for cause, shortfall in self._causes(ask, percents, group):
                found.setdefault(cause, FailureCounts()).add(group, shortfall)
        total = sum(group.count for group in groups)
        for cause in sorted(found):
            _, kind, what, detail = cause
            yield self._reason(kind, what, found[cause], total, detail)

    def _reason(
        self, kind: str, what: str, counts: FailureCounts, total: int, detail: str = ""
    ) -> Reason:
        nearest, of_nearest = self._representatives.nearest(counts)
        return Reason(kind, what, counts.count, total, "device", detail or of_nearest, nearest)

    def _causes(
        self, ask: DeviceRequest, percents: Mapping[str, int], group: Group
    ) -> Iterator[tuple[Cause, Shortfall | None]]:
        device, use = group.one.device, group.use
        if use == UNHEALTHY:
            yield (0, "in-use", "unhealthy", ""), None
        taint = untolerated(device.taints, ask.tolerations)
        if taint is not None:
            yield (1, "taint", formatting.untolerated(taint), ""), Shortfall()
        if device.binding_conditions and not self._version.device_binding:
            detail = "the API server or the claim-controller does not know them"
            yield (2, "unsupported", "has binding conditions, and dray binds", detail), Shortfall()
        is_shared = device.allow_multiple_allocations
        if not ask.admin_access and (use == WHOLE or (isinstance(use, tuple) and not is_shared)):
            yield (3, "in-use", "in use", ""), None
        elif use != UNHEALTHY:
            yield from self._of_capacity(ask, percents, group)
            if not isinstance(use, tuple):  # The first share consumed the counters.
                yield from _of_counters(group)

    def _of_capacity(
        self, ask: DeviceRequest, percents: Mapping[str, int], group: Group
    ) -> Iterator[tuple[Cause, Shortfall | None]]:
        device, use = group.one.device, group.use
        used = dict(use) if isinstance(use, tuple) and device.allow_multiple_allocations else {}
        capacity, requested = device.capacity, self._requested(ask, device)
        shares = in_percent(percents, ask.capacity, capacity)
        try:
            wanted = demand(requested, capacity, self._version)
        except AllocationError as error:
            yield (4, "capacity", "the requested amounts are invalid", str(error)), None
            return
        if wanted is None:
            asked = dict(sorted(requested.items()))
            what = formatting.too_small(formatting.asked(asked, shares))
            shortfall = Shortfall(
                _capacity_rank(capacity, asked), formatting.published(asked, capacity)
            )
            yield (5, "capacity", what, ""), shortfall
            return
        for name, taken in wanted.nano.items():
            total = wanted.totals[name]
            left = total - used.get(name, 0)
            if taken > left:
                what, shortfall = _insufficient(name, taken, left, capacity, shares)
                yield (6, "capacity", not_enough(name, what), ""), shortfall


def _insufficient(
    name: str, taken: int, left: int, capacity: Mapping[str, Capacity], shares: Mapping[str, int]
) -> tuple[str, Shortfall]:
    """The requested amount, and how much is left, both in percent for a percentage."""
    if name in shares:
        whole = parse_quantity(capacity[PHYSICAL[name]].value).nano
        of_whole = Shortfall((-formatting.shared(left, whole),), formatting.share(left, whole))
        return formatting.percentage(name, shares[name]), of_whole
    like = capacity[name].value
    return formatting.amount(taken, like), Shortfall((-left,), formatting.left(left, like))


def _capacity_rank(capacity: Mapping[str, Capacity], asked: Iterable[str]) -> Rank:
    """Ranks devices with larger capacities nearer; a missing capacity is the farthest."""
    amounts = (amount_of(capacity[name].value) if name in capacity else None for name in asked)
    return tuple(1 if amount is None else -amount for amount in amounts)


def _of_counters(group: Group) -> Iterator[tuple[Cause, Shortfall | None]]:
    """The counters that have less left than the device consumes."""
    left = dict(group.key[2])
    needed: dict[tuple[str, str], int] = {}
    for use in group.one.device.consumes:
        for name, text in use.counters.items():
            counter = use.counter_set, name
            needed[counter] = needed.get(counter, 0) + parse_quantity(text).nano
            if counter in left and needed[counter] > left[counter]:
                wanted = formatting.amount(needed[counter], text)
                what = not_enough(f"counter {name} of {use.counter_set}", wanted)
                shortfall = Shortfall((-left[counter],), formatting.left(left[counter], text))
                yield (7, "capacity", what, ""), shortfall


def _is_still(one: Candidate, known: Device) -> bool:
    then = one.device
    return then.attributes == known.attributes and then.capacity == known.capacity


def _failing(clauses: Sequence[ClauseResult]) -> list[tuple[int, ClauseResult]]:
    """The false clauses with their positions; if none is false, those that can't be evaluated."""
    false = [(at, one) for at, one in enumerate(clauses) if one.value is False]
    return false or [(at, one) for at, one in enumerate(clauses) if one.value is None]
