"""The allocator without a node table: every node is judged by ``nodes.predicates``, every set of
cards by a plain search.
"""

from tests.unit.allocator.reference_search import Reference

from dray_allocator.devices.usage import MOST_LOAD, load_of
from dray_allocator.nodes.predicates import fits
from dray_allocator.nodes.tie_break import tie
from dray_allocator.placement.pod_request import PodRequest


def shares_on(state, want: PodRequest, node: str, means):
    """What the exact search gives on one node; None if the pod does not fit."""
    if not fits(want.pod.needs, state.facts.nodes[node].node, state.assumed_pods.on(node)):
        return None
    sign = -1 if means[1] == "binpack" else 1

    def rate(_, card):
        return (), sign * card_load_by_hand(state, want, card, means[2]), tie(card.name)

    return Reference(state, want.pattern.asks, rate).shares(node)


def key_by_hand(state, want: PodRequest, node: str, means) -> tuple[int, int]:
    load = node_load_by_hand(state, want, node, means[2])
    uid = state.facts.nodes[node].node.uid
    return (MOST_LOAD - load if means[0] == "binpack" else load, tie(uid))


def node_load_by_hand(state, want: PodRequest, node: str, weights) -> int:
    """The formula of the user guide."""
    fact, held, needs = state.facts.nodes[node].node, state.assumed_pods.on(node), want.pod.needs
    cards = state.published.of(node).cards
    parts = []
    if needs.cpu_milli and "cpu" in weights:
        used = fact.used_cpu_milli + held.cpu_milli + needs.cpu_milli
        parts.append((weights["cpu"], used, fact.cpu_milli))
    if needs.memory_bytes and "memory" in weights:
        used = fact.used_memory_bytes + held.memory_bytes + needs.memory_bytes
        parts.append((weights["memory"], used, fact.memory_bytes))
    for name in sorted({*weights} - {"cpu", "memory"}):
        asked = sum(
            ask.request.count * max((taken(ask, card, name) for card in cards), default=0)
            for ask in want.pattern.asks
        )
        used = sum(in_use(state, card, name) for card in cards)
        if asked:
            total = sum(card.shape.totals[name] // 10**6 for card in cards)
            parts.append((weights[name], used + asked, total))
    loads = [load_of(card.shape.totals, state.device_usage.of(card.id)) for card in cards]
    return mean(parts, sum(loads) // max(len(cards), 1))


def card_load_by_hand(state, want: PodRequest, card, weights) -> int:
    parts = [
        (weights[name], in_use(state, card, name), card.shape.totals[name] // 10**6)
        for name in sorted({*weights} - {"cpu", "memory"})
        if any(taken(ask, card, name) for ask in want.pattern.asks)
    ]
    return mean(parts, load_of(card.shape.totals, state.device_usage.of(card.id)))


def taken(ask, card, name: str) -> int:
    consumed = ask.of(card)
    return consumed.nano.get(name, 0) // 10**6 if consumed else 0


def in_use(state, card, name: str) -> int:
    use = state.device_usage.of(card.id)
    if use.shares and (use.whole or not card.device.allow_multiple_allocations):
        return card.shape.totals[name] // 10**6
    return -(-use.used.get(name, 0) // 10**6)


def mean(parts, otherwise: int) -> int:
    if not parts:
        return otherwise
    return round(
        sum(weight * (part / whole) for weight, part, whole in parts)
        / sum(weight for weight, _, _ in parts)
        * 1_000_000
    )
