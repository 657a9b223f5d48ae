"""A look at every card and every node by itself: what reasons found by kinds must agree with.

Ties go by the cards' identities and the nodes' uids, as everywhere.
"""

from dataclasses import replace

from tests.unit.allocator.reference_search import Reference

from dray.api import names
from dray.api.quantities import parse_quantity, rounded_down
from dray.reasons import Nearest, Reason
from dray_allocator.explain.nodes import free_amount
from dray_allocator.nodes.predicates import failures
from dray_allocator.nodes.tie_break import tie
from dray_allocator.placement.node_filter import candidates
from dray_allocator.placement.pod_request import PodRequest

ORDER = ("unsupported", "taint", "capacity", "in-use")


def least(places):
    """The card with the least tie."""
    return min(places, key=lambda card: tie(card.name))


def named(card) -> str:
    return f"{card.id.pool}/{card.id.device}"


class Plain:
    """Every card and node asked by itself."""

    def __init__(self, state, want: PodRequest) -> None:
        self.state, self.want = state, want
        self.nodes = state.facts.served_nodes("pool")
        self.cards = [card for node in self.nodes for card in state.published.of(node).cards]

    def reasons(self) -> list[Reason]:
        found: dict[Reason, None] = {}
        unhealthy = sum(self.state.published.unhealthy_counts.get(node, 0) for node in self.nodes)
        if unhealthy:
            total = len(self.cards) + unhealthy
            found[Reason("in-use", "unhealthy", unhealthy, total)] = None
        reason_text = {
            ask.request.name: [*self._clauses(ask), *self._free(ask)]
            for ask in self.want.pattern.asks
        }
        for reason in (one for some in reason_text.values() for one in some):
            about = [name for name, some in reason_text.items() if reason in some]
            what = (
                f"request {about[0]}: {reason.what}"
                if len(about) < len(reason_text)
                else reason.what
            )
            found[replace(reason, what=what)] = None
        return [*found, *self._of_nodes(), *self._together()]

    def _results(self, ask, card):
        return [self.state.selectors.explain(text, card) for text in ask.selectors]

    def _failing(self, ask, card):
        """Kind, text and result of each clause that fails on a card."""
        for results in self._results(ask, card):
            no = [one for one in results if one.value is False]
            unsaid = [] if no else [one for one in results if one.value is None]
            yield from ((("clause", one.text), one) for one in no)
            yield from ((("clause-error", one.text), one) for one in unsaid)

    def _clauses(self, ask):
        order = [
            one.text for card in self.cards[:1] for all_ in self._results(ask, card) for one in all_
        ]
        failing = {card.name: dict(self._failing(ask, card)) for card in self.cards}
        for kind in ("clause", "clause-error"):
            for text in dict.fromkeys(order):
                where = [card for card in self.cards if (kind, text) in failing[card.name]]
                if where:
                    fewest = min(len(failing[card.name]) for card in where)
                    near = least(card for card in where if len(failing[card.name]) == fewest)
                    result = failing[near.name][kind, text]
                    yield Reason(
                        kind,
                        text,
                        len(where),
                        len(self.cards),
                        detail=result.error,
                        nearest=Nearest(named(near), seen(result)),
                    )

    def _free(self, ask):
        matching = [one for one in self.cards if self.state.selectors.matches(ask.selectors, one)]
        where: dict = {}
        for card in matching:
            for cause in self._causes(ask, card):
                where.setdefault(cause, []).append(card)
        for cause in sorted(where, key=lambda one: (ORDER.index(one[0]), *one[1:])):
            kind, what, detail = cause
            near = self._nearest(ask, cause, where[cause])
            yield Reason(kind, what, len(where[cause]), len(matching), "device", detail, near)

    def _nearest(self, ask, cause, cards):
        kind, what, _ = cause
        if kind == "in-use":
            return None
        if what.startswith("not enough free "):
            key = what.split()[3]
            most = max(self._left(card, key) for card in cards)
            card = least(one for one in cards if self._left(one, key) == most)
            binary = parse_quantity(card.device.capacity[key].value).binary
            return Nearest(named(card), rounded_down(max(0, most), binary=binary))
        if kind == "capacity":
            keys = sorted(ask.request.capacity)
            totals = {one.name: [one.shape.totals.get(key, -1) for key in keys] for one in cards}
            most = max(totals.values())
            card = least(one for one in cards if totals[one.name] == most)
            has = card.device.capacity
            reason_text = (f"{key} {has[key].value}" if key in has else f"no {key}" for key in keys)
            return Nearest(named(card), ", ".join(reason_text))
        return Nearest(named(least(cards)))

    def _left(self, card, key) -> int:
        return card.shape.totals[key] - self.state.device_usage.of(card.id).used.get(key, 0)

    def _causes(self, ask, card):
        if card.shape.fault:
            yield "unsupported", "unparsable", card.shape.fault
            return
        taint = ask.untolerated(card)
        if taint is not None:
            what = f"device taint {taint.key}={taint.value}:{taint.effect} is not tolerated"
            yield "taint", what, ""
        consumed = ask.of(card)
        if consumed is None:
            asked = ", ".join(f"{key} {one}" for key, one in sorted(ask.request.capacity.items()))
            yield "capacity", f"too small, or without such a capacity ({asked} asked)", ""
        elif not self.state.device_usage.has_room(card, consumed):
            if (
                self.state.device_usage.of(card.id).whole
                or not card.device.allow_multiple_allocations
            ):
                yield "in-use", "in use", ""
                return
            for key, amount in consumed.nano.items():
                if amount > self._left(card, key):
                    yield "capacity", f"not enough free {key} ({consumed.text[key]} asked)", ""

    def _of_nodes(self) -> list[Reason]:
        state, want = self.state, self.want
        where: dict = {}
        for name in self.nodes:
            node, held = state.facts.nodes[name].node, state.assumed_pods.on(name)
            failing = list(failures(want.pod.needs, node, held, alone=want.pattern.alone))
            for what in failing:
                left, has = free_amount(what, node, held)
                rank = (-left, len(failing), tie(node.uid))
                where.setdefault(what, []).append((rank, Nearest(name, has)))
        return [
            Reason("node", what, len(some), len(self.nodes), "node", nearest=min(some)[1])
            for what, some in sorted(where.items())
        ]

    def _together(self) -> list[Reason]:
        count = sum(ask.request.count for ask in self.want.pattern.asks)
        constraints = [one for ask in self.want.pattern.asks for one in ask.constraints]
        if count <= 1 and not constraints:
            return []
        enough = 0
        for node in candidates(self.state, self.state.domains["pool"], self.want):
            search = Reference(self.state, self.want.pattern.asks, lambda *_: ((), 0, 0))
            enough += search.shares(node) is not None
        failed, total = len(self.nodes) - enough, len(self.nodes)
        fewer = "no matching device" if count == 1 else f"fewer than {count} matching devices"
        what = f"{fewer} with room on one node"
        rule = f" that meet matchAttribute {names.qualified('model')}" if constraints else ""
        most = max(len(self.state.published.of(name).cards) for name in self.nodes)
        detail = f"no node has more than {most}" if count > most > 0 else ""
        return [Reason("count", what + rule, failed, total, "node", detail)] if failed else []


def seen(result) -> str:
    """What a clause of these selectors read."""
    if result.value is None:
        return ""
    found = {text.rpartition(".")[2]: written(one) for text, one in result.read.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{name} {one}" for name, one in found.items())


def written(value) -> str:
    if value is None:
        return "nothing"
    return f'"{value}"' if isinstance(value, str) else str(value)
