"""Why a pod goes nowhere: what fails, on how many of the pool's devices or nodes.

Selectors are evaluated once per distinct device; the counts are of devices.
"""

from collections.abc import Iterable, Mapping, Sequence

from dray.cel.evaluate import ClauseResult
from dray.domain.placement import HARD
from dray.reasons import Reason
from dray_allocator.domain import Domain
from dray_allocator.fit.devices import Card
from dray_allocator.fit.search import STEPS, Ask, Search, Tries, has_room, untolerated
from dray_allocator.node.predicates import failures
from dray_allocator.placement.ask import Wanted
from dray_allocator.placement.choose import candidates
from dray_allocator.placement.topology import JOINED, best_set, concerns
from dray_allocator.state import AllocatorState

_MOST_REASONS = 24
_NO_DEVICES = "no slice with devices, or not all slices of its pool's newest generation"
_TOO_MANY = (
    "there may be one, but they are too many to try them all: ask for fewer, or constrain less"
)


def explain(state: AllocatorState, domain: Domain, wanted: Wanted) -> tuple[Reason, ...]:
    """The reasons, ordered from the claim's own words to the state of the nodes."""
    nodes = state.facts.served_nodes(domain.name)
    if not nodes:
        return (Reason("pool", f"nodes that dray serves in pool {domain.name}", 1, 1, "pool"),)
    cards = [card for node in nodes for card in state.fleet.of(node).cards]
    unhealthy = sum(state.fleet.of(node).unhealthy for node in nodes)
    reasons = [*_of_devices(state, wanted, cards, unhealthy), *_of_nodes(state, wanted, nodes)]
    reasons += _together(state, domain, wanted, nodes)
    if not cards and not unhealthy:
        reasons.append(Reason("count", "devices", len(nodes), len(nodes), "node", _NO_DEVICES))
    return tuple(reasons[:_MOST_REASONS])


def _of_devices(
    state: AllocatorState, wanted: Wanted, cards: Sequence[Card], unhealthy: int
) -> list[Reason]:
    found: dict[Reason, None] = {}
    if unhealthy:
        found[Reason("in-use", "healthy", unhealthy, len(cards) + unhealthy)] = None
    for ask in wanted.asks:
        for reason in (*_clauses(state, ask, cards), *_free(state, ask, cards)):
            found[reason] = None
    return list(found)


def _clauses(state: AllocatorState, ask: Ask, cards: Sequence[Card]) -> Iterable[Reason]:
    """False and failing clauses of every selector, in the order of the text."""
    false: dict[str, int] = {}
    failed: dict[str, int] = {}
    detail: dict[str, str] = {}
    for expression in ask.selectors:
        for clauses, count in _alike(state, expression, cards):
            no = [clause for clause in clauses if clause.value is False]
            for clause in no:
                false[clause.text] = false.get(clause.text, 0) + count
            # One false clause makes the whole false, whatever the others can't tell.
            for clause in () if no else clauses:
                if clause.value is None:
                    failed[clause.text] = failed.get(clause.text, 0) + count
                    detail.setdefault(clause.text, clause.error)
    for text, count in false.items():
        yield Reason("clause", text, count, len(cards))
    for text, count in failed.items():
        yield Reason("clause-error", text, count, len(cards), detail=detail[text])


def _alike(
    state: AllocatorState, expression: str, cards: Sequence[Card]
) -> Iterable[tuple[Sequence[ClauseResult], int]]:
    """What the clauses give, and on how many devices."""
    counts: dict[int, int] = {}
    results: dict[int, Sequence[ClauseResult]] = {}
    for card in cards:
        clauses = state.selectors.explain(expression, card)
        results[id(clauses)] = clauses
        counts[id(clauses)] = counts.get(id(clauses), 0) + 1
    return [(clauses, counts[key]) for key, clauses in results.items()]


def _free(state: AllocatorState, ask: Ask, cards: Sequence[Card]) -> Iterable[Reason]:
    """Taints, use and capacity, on the devices that the selectors match."""
    counts: dict[tuple[str, str, str], int] = {}
    matching = [card for card in cards if state.selectors.matches(ask.selectors, card)]
    for card in matching:
        for cause in _causes(state, ask, card):
            counts[cause] = counts.get(cause, 0) + 1
    for (kind, what, detail), count in counts.items():
        yield Reason(kind, what, count, len(matching), detail=detail)


def _causes(state: AllocatorState, ask: Ask, card: Card) -> Iterable[tuple[str, str, str]]:
    if card.fault:
        yield "unsupported", "can be read", card.fault
        return
    taint = untolerated(ask.request, card)
    if taint is not None:
        yield "taint", f"toleration of device taint {taint.key}={taint.value}:{taint.effect}", ""
    consumed = ask.of(card)
    if consumed is None:
        asked = ", ".join(f"{key} {text}" for key, text in sorted(ask.request.capacity.items()))
        yield "capacity", f"publishes {asked}", "more than the device has, or not a capacity of it"
    elif not has_room(state.ledger, card, consumed, ()):
        yield from _short(state, card, consumed.nano, consumed.text)


def _short(
    state: AllocatorState, card: Card, nano: Mapping[str, int], text: Mapping[str, str]
) -> Iterable[tuple[str, str, str]]:
    use = state.ledger.of(card.id)
    if use.whole or not card.device.allow_multiple_allocations:
        yield "in-use", "not in use", ""
        return
    for key, amount in nano.items():
        if use.used.get(key, 0) + amount > card.totals[key]:
            yield "capacity", f"free {key} ≥ {text[key]}", ""


def _of_nodes(state: AllocatorState, wanted: Wanted, nodes: Sequence[str]) -> list[Reason]:
    counts: dict[str, int] = {}
    needs, given = wanted.pod.needs, state.facts.given
    for name in nodes:
        node, held = state.facts.nodes[name].node, state.holds.on(name)
        for what in failures(needs, node, held, alone=wanted.alone, given=given):
            counts[what] = counts.get(what, 0) + 1
        if wanted.fixed_node and name != wanted.fixed_node:
            what = f"is {wanted.fixed_node}, where another claim of the pod is allocated"
            counts[what] = counts.get(what, 0) + 1
        if name in wanted.excluded:
            counts["not withdrawn from lately"] = counts.get("not withdrawn from lately", 0) + 1
    return [Reason("node", what, count, len(nodes), "node") for what, count in counts.items()]


def _together(
    state: AllocatorState, domain: Domain, wanted: Wanted, nodes: Sequence[str]
) -> list[Reason]:
    """How many devices are wanted on one node, where more than one is."""
    count = sum(ask.request.count for ask in wanted.asks)
    if count <= 1 and not any(ask.constraints for ask in wanted.asks):
        return []
    enough = unsure = 0
    tries = Tries()
    for node in candidates(state, domain, wanted):
        search = Search(state.ledger, lambda ask, card: ((), 0, 0), tries.at_most(STEPS))
        is_placed = _is_placed(state, search, wanted, node)
        enough += is_placed
        unsure += not is_placed and tries.ran_out
    what = f"{count} matching device{'' if count == 1 else 's'} with room on one node"
    told = {f"{what}{_constrained(wanted)}": (len(nodes) - enough - unsure, "")}
    told[f"a choice of {count} devices among the first {STEPS} tried"] = (unsure, _TOO_MANY)
    return [
        Reason("count", what, failed, len(nodes), "node", detail)
        for what, (failed, detail) in told.items()
        if failed
    ]


def _is_placed(state: AllocatorState, search: Search, wanted: Wanted, node: str) -> bool:
    asks = wanted.asks
    found = search.candidates(asks, state.fleet.of(node), state.selectors)
    if found is None:
        return False
    if _must_be_joined(wanted):
        return best_set(search, asks, found, HARD) is not None
    return search.fill(asks, found) is not None


def _must_be_joined(wanted: Wanted) -> bool:
    return wanted.placement.topology == HARD and concerns(wanted.asks, HARD)


def _constrained(wanted: Wanted) -> str:
    """What the devices must have in common, and the claims' constraints in their own words."""
    found: dict[str, None] = {}
    for constraint in (one for ask in wanted.asks for one in ask.constraints):
        for rule, name in (
            ("matchAttribute", constraint.match_attribute),
            ("distinctAttribute", constraint.distinct_attribute),
        ):
            if name is not None:
                found[f"{rule} {name}"] = None
    meeting = f" that meet {' and '.join(found)}" if found else ""
    return f", {JOINED}{meeting}" if _must_be_joined(wanted) else meeting
