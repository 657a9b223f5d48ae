"""Which pods are typical, and what they count for: the policy that decisions are taken by.

For a typical pod m with frequency p, of all nodes n and their idle milli of cards,

    u = Σ cap(n) / Σ idle(n)        the share of what is idle that m could use, cpu included
    w = p · max(u, 1/1000)^-1.5     what few nodes can hold is dear
    ρ = (cpu per card that typical pods ask for) / (cpu per card that the nodes have)
    α = 0.25 · ρ², from 0.02 to 0.6 what can be used counts where cpu is scarce, else what can't

a milli that m can use is worth α·w, and an idle one that it can't costs (1-α)·p. What is computed
here is rounded to whole numbers and written to the decision log; only those are decided by.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dray.messages.decisions import Learned, TypicalPod
from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.nodes.table import NodeTable
from dray_allocator.scoring.fragmentation.node_worth import NodeWorth
from dray_allocator.scoring.fragmentation.nodes import KindsSeen, kinds_of, tell_models_apart
from dray_allocator.scoring.fragmentation.shapes import CARD, PodShape, class_of, shape_of

HALF_LIFE: Final = 4000
"""A pod seen so many pods ago counts for half."""
PRIOR: Final = 50.0
"""Pods that are taken to have been seen before the first one, a whole card of every class."""
MOST_SHAPES: Final = 384
MOST_SIGNATURES: Final = 2048
_EXPONENT: Final = -1.5
_LEAST_SHARE: Final = 0.001
_ALPHA: Final = 0.25
_LEAST_ALPHA: Final = 0.02
_MOST_ALPHA: Final = 0.6
_MICRO: Final = 1_000_000
_OFTEN: Final = 256
"""The model is learned again when as many pods were seen, but at least this often, or"""
_CARDS_PER_POD: Final = 24
"""in a large pool, when there was a pod for so many cards."""
_SAME: Final = 0.05
"""What differs by less is not worth learning, which scores every node again."""


@dataclass(slots=True)
class ObservedPods:
    """Pods of one signature."""

    cpu_milli: int
    asks: Sequence[DeviceRequirements]
    count: float = 0.0
    shape: PodShape | None = None
    """None: not known for the kinds of cards that there are."""


@dataclass(slots=True)
class WorkloadModel:
    """The pods that one replica saw, and what those saw that wrote the log before it."""

    before: Learned | None
    """What the log says."""
    pods: int = 0
    """Seen since ``learned``."""
    total: int = 0
    _weight: float = 1.0
    """Of the next pod: instead of letting all others fade, a new one counts for more."""
    _seen: dict[bytes, ObservedPods] = field(default_factory=dict)
    _prior: dict[PodShape, float] = field(default_factory=dict)
    _kinds: KindsSeen | None = None

    def __post_init__(self) -> None:
        if self.before is not None:
            self._prior = dict(_counts(self.before))
            self.total = int(sum(self._prior.values()))

    def see(self, signature: bytes, cpu_milli: int, asks: Sequence[DeviceRequirements]) -> None:
        """A pod asks for something for the first time."""
        known = self._seen.get(signature)
        if known is None:
            if len(self._seen) >= MOST_SIGNATURES:
                self._forget_rare()
            known = self._seen[signature] = ObservedPods(cpu_milli, asks)
        self._weight *= 2 ** (1 / HALF_LIFE)
        known.count += self._weight
        self.pods += 1
        self.total += 1
        if self._weight > 2**40:
            self._scale(1 / self._weight)

    def is_due(self, cards: int) -> bool:
        """Whether enough was seen to learn again, in a pool of so many cards."""
        return self.pods >= min(max(self.total // 2, 1), max(_OFTEN, cards // _CARDS_PER_POD))

    def learn(
        self,
        table: NodeTable,
        selectors: SelectorCache,
        cpu_of: Callable[[str], int],
        like: NodeWorth | None = None,
    ) -> Learned | None:
        """What to decide by from now on; None where it is as good as before, or nothing is there
        to learn about. ``cpu_of``: all cpu of a node, in milli. ``like``: the landscape by now,
        whose nodes need not be looked at again."""
        self.pods = 0
        tell_models_apart(table)
        fleet = _fleet(table, cpu_of)
        if not fleet.cards:
            return None
        if not self._prior:
            self._prior = _cold_start(table, fleet, cpu_of)
        found = _learned(self._shapes(table, selectors), table, fleet, like)
        if self.before is not None:
            found = _numbered(found, self.before.version + 1)
            if _is_same(found, self.before):
                return None
        self.before = found
        return found

    def _shapes(self, table: NodeTable, selectors: SelectorCache) -> dict[PodShape, float]:
        """The shapes seen and their counts: what is typical of the pool's cards."""
        kinds = kinds_of(table)
        if kinds != self._kinds:
            self._kinds = kinds
            for seen in self._seen.values():
                seen.shape = None
        examples = [table.card_kinds.example(kind) for kind in range(table.card_kinds.count)]
        counts = dict(self._prior)
        for seen in self._seen.values():
            if seen.shape is None:
                seen.shape = shape_of(seen.cpu_milli, seen.asks, examples, selectors)
            counts[seen.shape] = counts.get(seen.shape, 0.0) + seen.count
        most = sorted(counts, key=lambda shape: (-counts[shape], shape))[:MOST_SHAPES]
        return {shape: counts[shape] / self._weight for shape in most}

    def _forget_rare(self) -> None:
        rare = sorted(self._seen, key=lambda one: (self._seen[one].count, one))
        for signature in rare[: MOST_SIGNATURES // 4]:
            del self._seen[signature]

    def _scale(self, by: float) -> None:
        self._weight *= by
        for seen in self._seen.values():
            seen.count *= by
        self._prior = {shape: count * by for shape, count in self._prior.items()}


@dataclass(slots=True)
class PoolHardware:
    """All that a pool's nodes have."""

    cards: int
    cpu_milli: int
    """Of nodes with cards."""
    cards_of: dict[str, int]
    """Per class."""


def _fleet(table: NodeTable, cpu_of: Callable[[str], int]) -> PoolHardware:
    kinds = table.card_kinds.count
    there = table.kind[: table.places][table.there[: table.places]]
    cards_of: dict[str, int] = {}
    for kind, cards in enumerate(np.bincount(there, minlength=kinds).tolist()):
        if cards:
            name = class_of(table.card_kinds.example(kind))
            cards_of[name] = cards_of.get(name, 0) + cards
    counts = table.count.tolist()
    cpu_milli = sum(max(0, cpu_of(name)) for name, row in table.rows.items() if counts[row])
    return PoolHardware(len(there), cpu_milli, cards_of)


def _cold_start(
    table: NodeTable, fleet: PoolHardware, cpu_of: Callable[[str], int]
) -> dict[PodShape, float]:
    """Before anything was seen: a whole card of every class, as often as there are such cards."""
    per_card, cpu_milli_of = fleet.cpu_milli / fleet.cards, _cpu_milli_of(table, cpu_of)
    return {
        PodShape(int(min(per_card, cpu_milli_of[name] / cards)), 1, ((name, CARD),)): PRIOR
        * cards
        / fleet.cards
        for name, cards in sorted(fleet.cards_of.items())
    }


def _cpu_milli_of(table: NodeTable, cpu_of: Callable[[str], int]) -> dict[str, float]:
    """Per class, the cpu of its cards: a node's is theirs in equal parts."""
    found: dict[str, float] = {}
    classes = [class_of(table.card_kinds.example(kind)) for kind in range(table.card_kinds.count)]
    for name, row in sorted(table.rows.items()):
        kinds = table.kind[table.stretch(row)].tolist()
        for kind in kinds:
            one = classes[kind]
            found[one] = found.get(one, 0.0) + max(0, cpu_of(name)) / len(kinds)
    return found


def _learned(
    counts: Mapping[PodShape, float], table: NodeTable, fleet: PoolHardware, like: NodeWorth | None
) -> Learned:
    classes = tuple(sorted(fleet.cards_of))
    shapes = sorted(counts)
    total = sum(counts[shape] for shape in shapes)
    shares = [counts[shape] / total for shape in shapes]
    alpha = _alpha(shapes, shares, fleet)
    usable = _usable(shapes, classes, table, like)
    pods = []
    for shape, share, could in zip(shapes, shares, usable, strict=True):
        gain = alpha * share * max(could, _LEAST_SHARE) ** _EXPONENT if could else 0.0
        weights = (CARD * counts[shape], _MICRO * gain, _MICRO * (1 - alpha) * share)
        pods.append(_typical(shape, classes, *map(round, weights)))
    return Learned(version=1, classes=classes, pods=tuple(pods))


def _alpha(shapes: Sequence[PodShape], shares: Sequence[float], fleet: PoolHardware) -> float:
    asked = sum(share * _milli(shape, fleet) for shape, share in zip(shapes, shares, strict=True))
    cpu = sum(share * shape.cpu_milli for shape, share in zip(shapes, shares, strict=True))
    there = fleet.cpu_milli / (CARD * fleet.cards)
    scarcity = cpu / asked / there if asked and there else 1.0
    return min(max(_ALPHA * scarcity**2, _LEAST_ALPHA), _MOST_ALPHA)


def _milli(shape: PodShape, fleet: PoolHardware) -> float:
    """What a pod takes of cards, in the mean over those that it can use."""
    cards = sum(fleet.cards_of.get(name, 0) for name, _ in shape.milli)
    taken = sum(milli * fleet.cards_of.get(name, 0) for name, milli in shape.milli)
    return shape.cards * taken / cards if cards else 0.0


def _usable(
    shapes: Sequence[PodShape], classes: tuple[str, ...], table: NodeTable, like: NodeWorth | None
) -> list[float]:
    """Per shape, the share of the idle milli on all nodes that such pods could have."""
    pods = tuple(_typical(shape, classes, 0, 0, 0) for shape in shapes)
    landscape = NodeWorth(table, Learned(version=0, classes=classes, pods=pods), 0, like)
    landscape.nodes.catch_up()
    return landscape.shares()


def _typical(
    shape: PodShape, classes: tuple[str, ...], count: int, gain: int, waste: int
) -> TypicalPod:
    milli = dict(shape.milli)
    return TypicalPod(
        cpu_milli=shape.cpu_milli,
        cards=shape.cards,
        milli=tuple(milli.get(name, 0) for name in classes),
        count=count,
        gain=gain,
        waste=waste,
    )


def _counts(learned: Learned) -> dict[PodShape, float]:
    """What was counted, as it was written."""
    found: dict[PodShape, float] = {}
    for pod in learned.pods:
        milli = zip(learned.classes, pod.milli, strict=True)
        shape = PodShape(pod.cpu_milli, pod.cards, tuple((name, one) for name, one in milli if one))
        found[shape] = found.get(shape, 0.0) + pod.count / CARD
    return found


def _numbered(learned: Learned, version: int) -> Learned:
    return Learned(version=version, classes=learned.classes, pods=learned.pods)


def _is_same(now: Learned, before: Learned) -> bool:
    """Whether nodes would be scored much alike."""
    if now.classes != before.classes:
        return False
    return all(_differ(weigh, now, before) < _SAME for weigh in (_gain, _waste))


def _differ(weigh: Callable[[TypicalPod], int], now: Learned, before: Learned) -> float:
    """By how much two weigh the same pods differently, as a share of all weights."""
    weights = {(one.cpu_milli, one.cards, one.milli): weigh(one) for one in before.pods}
    moved = total = 0
    for one in now.pods:
        weight = weigh(one)
        moved += abs(weight - weights.pop((one.cpu_milli, one.cards, one.milli), 0))
        total += weight
    return (moved + sum(weights.values())) / max(total, 1)


def _gain(pod: TypicalPod) -> int:
    return pod.gain


def _waste(pod: TypicalPod) -> int:
    return pod.waste
