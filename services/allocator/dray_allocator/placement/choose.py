"""The node and the devices of a pod: node first, then card, both by the pool's mode."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dray.domain.claims import AllocatedDevice, Allocation, Claim, first_attempt
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_allocator.domain import Domain
from dray_allocator.fit.devices import Card
from dray_allocator.fit.search import FIRST_STEPS, STEPS, Ask, Search, Share, Tries
from dray_allocator.node.predicates import fits
from dray_allocator.placement.ask import Wanted, config_of
from dray_allocator.placement.modes import (
    Order,
    card_load,
    node_load,
    order,
    tie,
)
from dray_allocator.placement.preference import Key, card_key, cards_key
from dray_allocator.state import AllocatorState


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the pod goes."""

    node: str
    shares: tuple[Share, ...]
    considered_devices: int


def choose(state: AllocatorState, domain: Domain, wanted: Wanted) -> Choice | None:
    """The best node on which everything fits, or None."""
    prefer = order(state.facts.placement(domain.name)[0])
    considered = 0
    best: tuple[tuple[Key, ...], Choice] | None = None
    for choice in _choices(state, domain, wanted, prefer):
        considered = choice.considered_devices
        if not wanted.prefers:
            return choice
        key = cards_key(
            card_key(share.ask.preference, share.card.device) for share in choice.shares
        )
        if best is None or key < best[0]:  # of equals the first, which the mode ranks higher
            best = (key, choice)
    return replace(best[1], considered_devices=considered) if best else None


def _choices(
    state: AllocatorState, domain: Domain, wanted: Wanted, prefer: Order
) -> Iterator[Choice]:
    """Nodes on which everything fits, the best ranked first, those that are hard to search last."""
    considered, given, tries = 0, state.facts.given, Tries()
    hard: list[str] = []
    for node in _ranked(state, wanted, candidates(state, domain, wanted), prefer):
        devices = state.fleet.of(node)
        considered += len(devices.cards)
        if devices.unfit.get(wanted.devices_signature) == devices.uses:
            continue
        fact, held = state.facts.nodes[node].node, state.holds.on(node)
        if not fits(wanted.pod.needs, fact, held, alone=wanted.alone, given=given):
            continue
        shares = _on_node(state, wanted, node, prefer, tries.at_most(FIRST_STEPS))
        if shares is not None:
            yield Choice(node, tuple(shares), considered)
        elif tries.ran_out:
            hard.append(node)
    for node in hard:
        shares = _on_node(state, wanted, node, prefer, tries.at_most(STEPS))
        if shares is not None:
            yield Choice(node, tuple(shares), considered)


def candidates(state: AllocatorState, domain: Domain, wanted: Wanted) -> list[str]:
    """Nodes of the domain where the pod may go as far as its claims are concerned."""
    if wanted.fixed_node:
        serves = state.facts.serves(wanted.fixed_node, domain.name)
        return [wanted.fixed_node] if serves else []
    nodes = state.facts.served_nodes(domain.name)
    return [node for node in nodes if node not in wanted.excluded] if wanted.excluded else nodes


def decision_of(
    state: AllocatorState, domain: Domain, wanted: Wanted, choice: Choice
) -> PodDecision:
    """The choice as it is written to the log."""
    pod = wanted.pod
    return PodDecision(
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=choice.node,
        binder=pod.binder,
        claims=tuple(_claim(state, domain, claim, choice) for claim in wanted.claims),
        cpu_milli=pod.needs.cpu_milli,
        memory_bytes=pod.needs.memory_bytes,
        request_id=pod.request_id,
        traceparent=pod.traceparent,
        considered_devices=choice.considered_devices,
        resources=pod.needs.resources,
        ports=pod.needs.ports,
    )


def _ranked(
    state: AllocatorState, wanted: Wanted, nodes: Sequence[str], prefer: Order
) -> Iterator[str]:
    alike: dict[int, list[str]] = {}
    for node in nodes:
        alike.setdefault(node_load(state.fleet.of(node), state.ledger), []).append(node)
    claim_uid = wanted.claims[0].uid
    for load in sorted(alike, key=prefer):
        yield from sorted(alike[load], key=lambda node: tie(claim_uid, node))


def _on_node(
    state: AllocatorState, wanted: Wanted, node: str, prefer: Order, tries: Tries
) -> list[Share] | None:
    devices, ledger = state.fleet.of(node), state.ledger

    def preference(ask: Ask, card: Card) -> tuple[Key, int, int]:
        key = card_key(ask.preference, card.device) if ask.preference else ()
        return key, prefer(card_load(card, ledger.of(card.id))), tie(ask.claim_uid, card.name)

    search = Search(ledger, preference, tries)
    shares = search.place(wanted.asks, devices, state.selectors)
    if shares is None and not tries.ran_out:
        devices.remember_unfit(wanted.devices_signature)
    return shares


def _claim(state: AllocatorState, domain: Domain, claim: Claim, choice: Choice) -> ClaimDecision:
    shares = [share for share in choice.shares if share.ask.claim_uid == claim.uid]
    devices = tuple(
        AllocatedDevice(share.ask.request.name, share.card.id, None, dict(share.consumed.text))
        for share in shares
    )
    return ClaimDecision(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        attempt=_next_attempt(domain, claim),
        allocation=Allocation(devices, choice.node, config_of(state, claim)),
    )


def _next_attempt(domain: Domain, claim: Claim) -> int:
    known = domain.current.claims.get(claim.uid)
    highest = max(known.attempt if known else 0, claim.marked)
    return max(first_attempt(domain.epoch), highest + 1)
