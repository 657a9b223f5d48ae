"""Why the structured lane finds nothing for a pod: what fails, on how many devices or nodes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dray.cel.errors import CelError
from dray.cel.evaluate import ClauseResult, compile
from dray.domain.devices import DeviceId
from dray.domain.dra.asks import Ask
from dray.reasons import Reason
from dray_allocator.domain import Domain
from dray_allocator.lane.asking import asks_of
from dray_allocator.lane.seen import seen_by
from dray_allocator.lane.trying import NODE_LOOKS, POD_LOOKS, Outcome, Trying, node_of
from dray_allocator.placement.ask import Wanted
from dray_allocator.placement.choose import candidates
from dray_allocator.placement.explain import TOO_MANY, constrained
from dray_allocator.placement.on_nodes import on_nodes
from dray_allocator.state import AllocatorState
from dray_allocator.structured.candidates import Candidate, candidates_of
from dray_allocator.structured.capacity import demand
from dray_allocator.structured.errors import AllocationError
from dray_allocator.structured.pools import gather
from dray_allocator.structured.rules import Rules
from dray_allocator.structured.selectors import view_of
from dray_allocator.structured.taking import untolerated

_MOST_REASONS = 24
_MOST_DEVICES = 5_000
"""Looked at to find out what fails on them."""
_NO_DEVICES = "no slice with devices, or not all slices of its pool's newest generation"


def explain_in_full(state: AllocatorState, domain: Domain, wanted: Wanted) -> tuple[Reason, ...]:
    """The reasons, ordered from the claims' own words to the state of the nodes."""
    nodes = state.facts.served_nodes(domain.name)
    if not nodes:
        return (Reason("pool", f"nodes that dray serves in pool {domain.name}", 1, 1, "pool"),)
    trying = Trying(state, domain, wanted)
    devices = _Devices(state, trying.rules)
    for node in candidates(state, domain, wanted):
        devices.see(node, is_filling=trying.is_filling)
    reasons = list(devices.unusable())
    asks = {ask: None for claim in wanted.claims for ask in map(_Key, asks_of(claim))}
    reasons += [reason for key in asks for reason in devices.reasons(key.ask)]
    reasons += on_nodes(state, wanted, nodes)
    reasons += _of_outcomes(wanted, list(trying.outcomes()), trying.untried, len(nodes))
    if not devices.found:
        reasons.append(Reason("count", "devices", len(nodes), len(nodes), "node", _NO_DEVICES))
    return tuple(dict.fromkeys(reasons))[:_MOST_REASONS]


def _of_outcomes(
    wanted: Wanted, outcomes: Sequence[Outcome], untried: int, nodes: int
) -> Iterator[Reason]:
    """What came of the nodes that take the pod, its devices aside."""
    errors = [one.error for one in outcomes if one.error]
    unfit = sum(one.results is None and not (one.error or one.gave_up) for one in outcomes)
    gave_up = sum(one.gave_up for one in outcomes)
    if errors:
        yield Reason(
            "count", "devices that can be allocated", len(errors), nodes, "node", errors[0]
        )
    if unfit:
        what = f"devices for all its requests together{constrained(wanted.claims)}"
        yield Reason("count", what, unfit, nodes, "node")
    if gave_up:
        what = f"a choice of devices among the first {NODE_LOOKS} tried"
        yield Reason("count", what, gave_up, nodes, "node", TOO_MANY)
    if untried:
        what = f"one of the nodes with the first {POD_LOOKS} devices tried"
        yield Reason("count", what, untried, nodes, "node", TOO_MANY)


class _Key:
    """An ask, alike with others that want the same under another name."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self._same = (ask.device_class, ask.selectors, str(ask.capacity), ask.tolerations)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._same == other._same

    def __hash__(self) -> int:
        return hash(self._same)


@dataclass(slots=True)
class _Devices:
    """The devices that the nodes see, each once, and what fails on them."""

    state: AllocatorState
    rules: Rules
    found: dict[DeviceId, Candidate] = field(default_factory=dict)
    _ill: dict[DeviceId, None] = field(default_factory=dict)
    _unread: dict[DeviceId, str] = field(default_factory=dict)
    """Devices of which something can't be read, and what."""
    _pools: dict[str, str] = field(default_factory=dict)
    """Why a pool can't be used; empty where it can."""

    def see(self, node: str, *, is_filling: bool) -> None:
        """Look at what a node sees, unless enough was seen."""
        if len(self.found) >= _MOST_DEVICES:
            return
        seen = seen_by(self.state, node, fills=is_filling)
        for id_, fault in seen.unread:
            self._unread[id_] = fault
        try:
            pools = gather(seen.slices, node_of(self.state, node), self.rules)
        except AllocationError:
            return  # What came of the node tells it.
        for pool in pools:
            incomplete = "not all slices of its newest generation are there"
            why = pool.invalid or (incomplete if pool.incomplete else "")
            self._pools[str(pool)] = why
            for one in () if why else candidates_of((pool,)):
                self._see(one)

    def _see(self, one: Candidate) -> None:
        if len(self.found) < _MOST_DEVICES:
            self.found.setdefault(one.id, one)
            if one.id.device in self.state.fleet.unhealthy(one.part.reach.node, one.id.driver):
                self._ill[one.id] = None

    def unusable(self) -> Iterator[Reason]:
        """Pools that can't be used, and devices that can't be read."""
        faults = {pool: why for pool, why in self._pools.items() if why}
        for pool, why in list(faults.items())[:1]:
            what = "whole and without contradictions"
            yield Reason("count", what, len(faults), len(self._pools), "pool", f"{pool}: {why}")
        total = len(self._unread) + len(self.found)
        for fault in list(self._unread.values())[:1]:
            yield Reason("unsupported", "can be read", len(self._unread), total, detail=fault)

    def reasons(self, ask: Ask) -> Iterator[Reason]:
        """Clauses of the selectors, then what fails on the devices that they take."""
        matching = list(self.found.values())
        of_class = self.state.facts.classes[ask.device_class]
        for expression in (*of_class.selectors, *ask.selectors):
            results = [(one, self._clauses(expression, one)) for one in matching]
            yield from _told(results)
            taken = {one.id for one, clauses in results if all(c.value for c in clauses)}
            matching = [one for one in matching if one.id in taken]
        counts: dict[tuple[str, str, str], int] = {}
        for one in matching:
            for cause in self._causes(ask, one):
                counts[cause] = counts.get(cause, 0) + 1
        for (kind, what, detail), count in counts.items():
            yield Reason(kind, what, count, len(matching), detail=detail)

    def _clauses(self, expression: str, one: Candidate) -> Sequence[ClauseResult]:
        card = self.state.fleet.card(one.id)
        if card is not None and not card.fault:
            return self.state.selectors.explain(expression, card)
        try:
            program = compile(expression, self.rules.language)
        except CelError as error:
            return (ClauseResult(expression, None, str(error).splitlines()[0]),)
        return program.explain(view_of(one, shows_sharing=True))

    def _causes(self, ask: Ask, one: Candidate) -> Iterator[tuple[str, str, str]]:
        if one.id in self._ill:
            yield "in-use", "healthy", ""
        taint = untolerated(one.device, ask)
        if taint is not None:
            yield (
                "taint",
                f"toleration of device taint {taint.key}={taint.value}:{taint.effect}",
                "",
            )
        if one.device.binding_conditions and not self.rules.device_binding:
            detail = "the API server or the claim-controller does not know them"
            yield "unsupported", "without binding conditions, where dray binds", detail
        use = self.state.ledger.of(one.id)
        is_shared = one.device.allow_multiple_allocations
        if not ask.admin_access and (use.whole or (use.shares and not is_shared)):
            yield "in-use", "not in use", ""
            return
        try:
            wanted = demand(ask.capacity, one.device.capacity, self.rules)
        except AllocationError as error:
            yield "capacity", "amounts that make sense", str(error)
            return
        if wanted is None:
            asked = ", ".join(f"{key} {text}" for key, text in sorted((ask.capacity or {}).items()))
            detail = "more than the device has, or not a capacity of it"
            yield "capacity", f"publishes {asked}", detail
        else:
            for name, taken, total in wanted.rows:
                if taken + (use.used.get(name, 0) if is_shared else 0) > total:
                    yield "capacity", f"free {name} ≥ {wanted.amounts[name]}", ""


def _told(results: Sequence[tuple[Candidate, Sequence[ClauseResult]]]) -> Iterator[Reason]:
    """False clauses, and those that can't be evaluated where none is false."""
    false: dict[str, int] = {}
    failed: dict[str, int] = {}
    detail: dict[str, str] = {}
    for _, clauses in results:
        no = [clause for clause in clauses if clause.value is False]
        for clause in no:
            false[clause.text] = false.get(clause.text, 0) + 1
        for clause in () if no else clauses:
            if clause.value is None:
                failed[clause.text] = failed.get(clause.text, 0) + 1
                detail.setdefault(clause.text, clause.error)
    for text, count in false.items():
        yield Reason("clause", text, count, len(results))
    for text, count in failed.items():
        yield Reason("clause-error", text, count, len(results), detail=detail[text])
