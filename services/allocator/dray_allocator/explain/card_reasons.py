"""Why cards don't fit a request, from the columns of the node table.

Selectors, taints and requested amounts are evaluated once per kind of card, free amounts in the
columns. A selector that reads more than kinds distinguish, such as the uuid, is evaluated on every
card. The order of reasons depends on their texts only, and the nearest shortfall on the IDs of
cards, so that a replay has the same reasons.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dray.cel.eval.program import ClauseResult
from dray.reasons import Nearest, Reason, not_enough
from dray_allocator.devices.capacity import Demand
from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.percentages import PHYSICAL, in_percent
from dray_allocator.devices.published_capacity import MOST_NANO
from dray_allocator.devices.published_devices import Card
from dray_allocator.devices.usage import FULL
from dray_allocator.explain import formatting
from dray_allocator.explain.suggest import suggest
from dray_allocator.nodes import equivalence_keys
from dray_allocator.nodes.columns import Flags, Places, expand_ranges, flagged
from dray_allocator.nodes.table import NodeTable
from dray_allocator.state.state import AllocatorState

Cause = tuple[str, str, str]
"""Kind, what and detail of a reason."""
_ORDER = ("unsupported", "taint", "capacity", "in-use")


@dataclass(frozen=True, slots=True)
class CardGroups:
    """The cards of a node table, in groups that are equal for one request, except for their use."""

    places: Places
    of: Places
    """The group of every place."""
    examples: tuple[Card, ...]

    def where(self, flags: Flags) -> Places:
        """The places of the flagged groups."""
        return self.places[flags[self.of]]

    def sizes(self) -> list[int]:
        """The number of cards of each group."""
        found: list[int] = np.bincount(self.of, minlength=len(self.examples)).tolist()
        return found


class CardReasons:
    """The reasons, from the cards of one pool."""

    def __init__(self, state: AllocatorState, table: NodeTable) -> None:
        self.state = state
        self.table = table

    def reasons(self, ask: DeviceRequirements) -> Iterator[Reason]:
        """The selectors' clauses that fail, then taints, use and capacities."""
        groups = self._groups(ask)
        yield from self._clauses(ask, groups)
        yield from self._causes(ask, groups)

    def card(self, place: int) -> Card:
        """The card at a place."""
        row = self.table.row.item(place)
        cards = self.state.published.of(self.table.names[row]).cards
        return cards[place - self.table.first.item(row)]

    def nearest(self, places: Places) -> Card:
        """The card with the lowest tie break."""
        return self.card(int(places[int(self.table.card_tie[places].argmin())]))

    def _groups(self, ask: DeviceRequirements) -> CardGroups:
        table, selectors = self.table, self.state.selectors
        reads = [selectors.reads(text) for text in ask.selectors]
        properties = equivalence_keys.attributes(read for some in reads for read in some or ())
        table.distinguish_cards(properties)
        rows = list(table.rows.values())
        places, _ = expand_ranges(table.first[rows], table.count[rows])
        kinds = table.kind[places]
        if None not in reads and all(map(table.card_kinds.distinguishes, properties)):
            examples = map(table.card_kinds.example, range(table.card_kinds.count))
            return CardGroups(places, kinds, tuple(examples))
        return CardGroups(places, np.arange(len(places)), tuple(map(self.card, places.tolist())))

    def _clauses(self, ask: DeviceRequirements, groups: CardGroups) -> Iterator[Reason]:
        """The clauses that are false, then those that can't be evaluated, in the order of the
        text."""
        found = [_Clauses(self.state, ask.selectors, card) for card in groups.examples]
        there = [one for one, size in zip(found, groups.sizes(), strict=True) if size]
        misses = np.array([one.misses for one in found], np.int64)[groups.of]
        for kind in ("clause", "clause-error"):
            for text in dict.fromkeys(text for one in found for text in one.texts):
                fails = np.array([text in one.failing(kind) for one in found], np.bool_)
                where = groups.where(fails)
                if where.size:
                    least = misses[fails[groups.of]]
                    card = self.nearest(where[least == least.min()])
                    result = _Clauses(self.state, ask.selectors, card).failing(kind)[text]
                    nearest = Nearest(_named(card), formatting.values(result))
                    total, detail = len(groups.places), result.error
                    if where.size == total and kind == "clause":
                        detail = suggest(one.failing(kind)[text] for one in there)
                    yield Reason(kind, text, where.size, total, "device", detail, nearest)

    def _causes(self, ask: DeviceRequirements, groups: CardGroups) -> Iterator[Reason]:
        """Taints, use and capacities of the cards that match the selectors."""
        matches = self.state.selectors.matches
        flags = np.array([matches(ask.selectors, one) for one in groups.examples], np.bool_)
        sizes = groups.sizes()
        total = sum(sizes[at] for at in flags.nonzero()[0].tolist())
        found = {**self._by_group(ask, groups, flags), **self._by_use(ask, groups, flags)}
        for cause in sorted(found, key=lambda one: (_ORDER.index(one[0]), *one[1:])):
            where, nearest = found[cause]
            kind, what, detail = cause
            yield Reason(kind, what, where, total, "device", detail, nearest)

    def _by_group(
        self, ask: DeviceRequirements, groups: CardGroups, matching: Flags
    ) -> Mapping[Cause, tuple[int, Nearest | None]]:
        """The causes that are common to all cards of a group."""
        failing: dict[Cause, list[int]] = {}
        for at in matching.nonzero()[0].tolist():
            for cause in _common(ask, groups.examples[at]):
                failing.setdefault(cause, []).append(at)
        found: dict[Cause, tuple[int, Nearest | None]] = {}
        for cause, which in failing.items():
            where = groups.where(flagged(which, len(groups.examples)))
            if where.size:
                found[cause] = (where.size, self._nearest_in_common(ask, cause, groups, which))
        return found

    def _nearest_in_common(
        self, ask: DeviceRequirements, cause: Cause, groups: CardGroups, which: list[int]
    ) -> Nearest | None:
        """The largest card if cards are too small; any card with the taint otherwise."""
        sizes = groups.sizes()
        which = [at for at in which if sizes[at]]
        if cause[0] == "capacity":
            keys = sorted(ask.request.capacity)
            totals = {
                at: [groups.examples[at].shape.totals.get(key, -1) for key in keys] for at in which
            }
            most = max(totals.values())
            which = [at for at in which if totals[at] == most]
        card = self.nearest(groups.where(flagged(which, len(groups.examples))))
        is_short = cause[0] == "capacity"
        seen = formatting.published(ask.request.capacity, card.device.capacity) if is_short else ""
        return Nearest(_named(card), seen)

    def _by_use(
        self, ask: DeviceRequirements, groups: CardGroups, matching: Flags
    ) -> Mapping[Cause, tuple[int, Nearest | None]]:
        """Cards that are in use as a whole, or have too little capacity left."""
        takes = [
            ask.of(card) if fits and not card.shape.fault else None
            for fits, card in zip(matching.tolist(), groups.examples, strict=True)
        ]
        could = groups.where(np.array([one is not None for one in takes], np.bool_))
        is_open = self.table.open[could]
        found: dict[Cause, tuple[int, Nearest | None]] = {}
        if not is_open.all():
            found["in-use", "in use", ""] = (int((~is_open).sum()), None)
        texts = _texts(ask, zip(takes, groups.examples, strict=True))
        percents = {key: formatting.percentage(key, one) for key, one in ask.percents.items()}
        for key, text in sorted({entry for entries in texts.values() for entry in entries.items()}):
            amounts = [
                one.nano[key] if one and texts[id(one)].get(key) == text else -1 for one in takes
            ]
            short = self._short_of(key, amounts, groups)
            if short.size:
                cause = ("capacity", not_enough(key, text), "")
                whole = PHYSICAL[key] if percents.get(key) == text else ""
                found[cause] = (short.size, self._nearest_short(key, whole, groups, short))
        return found

    def _short_of(self, key: str, amounts: list[int], groups: CardGroups) -> Places:
        """The positions of the open cards with less than the needed amount left; an amount below 0
        excludes a group."""
        table = self.table
        taking = np.array([amount >= 0 for amount in amounts], np.bool_)
        which = taking[groups.of] & table.open[groups.places]
        at_all = which.nonzero()[0]
        places, of = groups.places[at_all], groups.of[at_all]
        wanted = np.array([float(min(amount, MOST_NANO)) for amount in amounts])[of]
        if (
            max(amounts) == 0
        ):  # Only a card that is allocated beyond its capacity has less than 0 left.
            doubtful = table.load[places] > FULL
            short = np.zeros(len(places), np.bool_)
        else:
            free = table.free[table.dimension(key)][places]
            # Equal floats may differ before rounding, except on an unused card.
            doubtful = (free == wanted) & (table.load[places] > 0)
            short = free < wanted
        for at in doubtful.nonzero()[0].tolist():
            short[at] = self._left(key, self.card(places.item(at))) < amounts[of.item(at)]
        found: Places = at_all[short]
        return found

    def _left(self, key: str, card: Card) -> int:
        return card.shape.totals.get(key, 0) - self.state.device_usage.of(card.id).used.get(key, 0)

    def _nearest_short(self, key: str, whole: str, groups: CardGroups, short: Places) -> Nearest:
        """The card with the most left: of capacity ``key``, or as a share of ``whole`` if it is
        set."""
        where = groups.places[short]
        free = self.table.free[self.table.dimension(key)][where]
        if whole:
            wholes = [float(max(1, card.shape.totals.get(whole, 1))) for card in groups.examples]
            free = free / np.array(wholes)[groups.of[short]]
        card = self.nearest(where[free == free.max()])
        left = self._left(key, card)
        if whole:
            return Nearest(_named(card), formatting.share(left, card.shape.totals[whole]))
        return Nearest(_named(card), formatting.left(left, card.device.capacity[key].value))


class _Clauses:
    """The results of all selectors' clauses on a card."""

    def __init__(self, state: AllocatorState, selectors: Iterable[str], card: Card) -> None:
        self.texts: list[str] = []
        self._failing: dict[str, dict[str, ClauseResult]] = {"clause": {}, "clause-error": {}}
        for expression in selectors:
            results = state.selectors.explain(expression, card)
            self.texts += [one.text for one in results]
            false = [one for one in results if one.value is False]
            # After a false clause, errors of other clauses do not matter.
            failed = [] if false else [one for one in results if one.value is None]
            for one in false:
                self._failing["clause"].setdefault(one.text, one)
            for one in failed:
                self._failing["clause-error"].setdefault(one.text, one)
        self.misses = sum(map(len, self._failing.values()))

    def failing(self, kind: str) -> Mapping[str, ClauseResult]:
        """By text, the clauses that are false (``clause``) or fail (``clause-error``)."""
        return self._failing[kind]


def _common(ask: DeviceRequirements, card: Card) -> Iterator[Cause]:
    """Why a card does not fit a request, even if it is unused."""
    if card.shape.fault:
        yield "unsupported", "unparsable", card.shape.fault
        return
    taint = ask.untolerated(card)
    if taint is not None:
        yield "taint", formatting.untolerated(taint), ""
    if ask.of(card) is None:
        is_shared = card.device.allow_multiple_allocations
        percents = (
            in_percent(ask.percents, ask.request.capacity, card.shape.totals) if is_shared else {}
        )
        asked = formatting.asked(ask.request.capacity, percents)
        yield "capacity", formatting.too_small(asked), ""


def _texts(
    ask: DeviceRequirements, takes: Iterable[tuple[Demand | None, Card]]
) -> dict[int, dict[str, str]]:
    """By ``id`` of a demand, its amounts as text; percentages remain percentages."""
    found: dict[int, dict[str, str]] = {}
    for one, card in takes:
        if one is not None and id(one) not in found:
            percents = in_percent(ask.percents, ask.request.capacity, card.shape.totals)
            found[id(one)] = {
                key: formatting.percentage(key, percents[key])
                if key in percents
                else formatting.amount(nano, one.text.get(key, ""))
                for key, nano in one.nano.items()
            }
    return found


def _named(card: Card) -> str:
    return f"{card.id.pool}/{card.id.device}"
