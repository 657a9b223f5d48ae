"""The workload model: typical pods and their weights, learned from observed pods.

For a typical pod m with frequency p, over all nodes n and their idle thousandths of cards,

    u = Σ cap(n) / Σ idle(n)        share of idle capacity that m could use, considering cpu
    w = p · max(u, 1/1000)^-1.5     scarce capacity has a higher weight
    ρ = (cpu per card that typical pods request) / (cpu per card of the nodes)
    α = 0.25 · ρ², from 0.02 to 0.6

A thousandth that m can use is worth α·w, and an idle one that it can't use costs (1-α)·p. The
weights are rounded to whole numbers and written to the decision log; decisions use only these.
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
from dray_allocator.scoring.fragmentation.nodes import KindsState, distinguish_models, kinds_state
from dray_allocator.scoring.fragmentation.shapes import CARD, PodShape, class_of, shape_of

HALF_LIFE: Final = 4000
"""After this many later pods, a pod counts half."""
PRIOR: Final = 50.0
"""The weight of the shapes assumed before the first pod: one whole card of every class."""
_MOST_SHAPES: Final = 384
_MOST_SIGNATURES: Final = 2048
_EXPONENT: Final = -1.5
_LEAST_SHARE: Final = 0.001
_ALPHA: Final = 0.25
_LEAST_ALPHA: Final = 0.02
_MOST_ALPHA: Final = 0.6
_MICRO: Final = 1_000_000
_MAX_PODS: Final = 256
"""The model is learned again after half as many pods as were counted before, but at the latest
after this many pods."""
_CARDS_PER_POD: Final = 24
"""In a large pool, the latest is one pod per this many cards instead of ``_MAX_PODS``."""
_MIN_DIFFERENCE: Final = 0.05
"""A new model that differs by less is dropped: a new one causes all nodes to be scored again."""


@dataclass(slots=True)
class ObservedPods:
    """Pods of one signature."""

    cpu_milli: int
    asks: Sequence[DeviceRequirements]
    count: float = 0.0
    shape: PodShape | None = None
    """None: not computed for the current kinds of cards."""


@dataclass(slots=True)
class WorkloadModel:
    """The pods that this replica observed since the last model in the log."""

    before: Learned | None
    """The model in the log."""
    pods: int = 0
    """Pods since the last model."""
    total: int = 0
    _weight: float = 1.0
    """The weight of the next pod: it grows, so that earlier weights need not shrink."""
    _seen: dict[bytes, ObservedPods] = field(default_factory=dict)
    _prior: dict[PodShape, float] = field(default_factory=dict)
    _kinds: KindsState | None = None

    def __post_init__(self) -> None:
        if self.before is not None:
            self._prior = dict(_counts(self.before))
            self.total = int(sum(self._prior.values()))

    def observe(self, signature: bytes, cpu_milli: int, asks: Sequence[DeviceRequirements]) -> None:
        """Count a new pod."""
        known = self._seen.get(signature)
        if known is None:
            if len(self._seen) >= _MOST_SIGNATURES:
                self._forget_rare()
            known = self._seen[signature] = ObservedPods(cpu_milli, asks)
        self._weight *= 2 ** (1 / HALF_LIFE)
        known.count += self._weight
        self.pods += 1
        self.total += 1
        if self._weight > 2**40:
            self._scale(1 / self._weight)

    def is_due(self, cards: int) -> bool:
        """Whether enough pods were observed to learn again, in a pool with ``cards`` cards."""
        return self.pods >= min(max(self.total // 2, 1), max(_MAX_PODS, cards // _CARDS_PER_POD))

    def learn(
        self,
        table: NodeTable,
        selectors: SelectorCache,
        cpu_of: Callable[[str], int],
        like: NodeWorth | None = None,
    ) -> Learned | None:
        """Learn a new model; None if it hardly differs, or if the pool has no cards.

        ``cpu_of``: the cpu of a node, in milli. ``like``: the current node worth, whose nodes are
        reused.
        """
        self.pods = 0
        distinguish_models(table)
        hardware = _hardware(table, cpu_of)
        if not hardware.cards:
            return None
        if not self._prior:
            self._prior = _cold_start(table, hardware, cpu_of)
        found = _learned(self._shapes(table, selectors), table, hardware, like)
        if self.before is not None:
            found = _with_version(found, self.before.version + 1)
            if _hardly_differs(found, self.before):
                return None
        self.before = found
        return found

    def _shapes(self, table: NodeTable, selectors: SelectorCache) -> dict[PodShape, float]:
        """The most frequent shapes and their counts."""
        kinds = kinds_state(table)
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
        most = sorted(counts, key=lambda shape: (-counts[shape], shape))[:_MOST_SHAPES]
        return {shape: counts[shape] / self._weight for shape in most}

    def _forget_rare(self) -> None:
        rare = sorted(self._seen, key=lambda one: (self._seen[one].count, one))
        for signature in rare[: _MOST_SIGNATURES // 4]:
            del self._seen[signature]

    def _scale(self, by: float) -> None:
        self._weight *= by
        for seen in self._seen.values():
            seen.count *= by
        self._prior = {shape: count * by for shape, count in self._prior.items()}


@dataclass(slots=True)
class PoolHardware:
    """The hardware of a pool."""

    cards: int
    cpu_milli: int
    """The cpu of the nodes with cards."""
    cards_of: dict[str, int]
    """The number of cards by class."""


def _hardware(table: NodeTable, cpu_of: Callable[[str], int]) -> PoolHardware:
    kinds = table.card_kinds.count
    there = table.kind[: table.places][table.has_card[: table.places]]
    cards_of: dict[str, int] = {}
    for kind, cards in enumerate(np.bincount(there, minlength=kinds).tolist()):
        if cards:
            name = class_of(table.card_kinds.example(kind))
            cards_of[name] = cards_of.get(name, 0) + cards
    counts = table.count.tolist()
    cpu_milli = sum(max(0, cpu_of(name)) for name, row in table.rows.items() if counts[row])
    return PoolHardware(len(there), cpu_milli, cards_of)


def _cold_start(
    table: NodeTable, hardware: PoolHardware, cpu_of: Callable[[str], int]
) -> dict[PodShape, float]:
    """The shapes before the first pod: a whole card of each class, weighted by its number of
    cards."""
    per_card, cpu_milli_of = hardware.cpu_milli / hardware.cards, _cpu_milli_of(table, cpu_of)
    return {
        PodShape(int(min(per_card, cpu_milli_of[name] / cards)), 1, ((name, CARD),)): PRIOR
        * cards
        / hardware.cards
        for name, cards in sorted(hardware.cards_of.items())
    }


def _cpu_milli_of(table: NodeTable, cpu_of: Callable[[str], int]) -> dict[str, float]:
    """By class, the cpu of its cards: the cpu of a node is divided equally among its cards."""
    found: dict[str, float] = {}
    classes = [class_of(table.card_kinds.example(kind)) for kind in range(table.card_kinds.count)]
    for name, row in sorted(table.rows.items()):
        kinds = table.kind[table.card_slice(row)].tolist()
        for kind in kinds:
            one = classes[kind]
            found[one] = found.get(one, 0.0) + max(0, cpu_of(name)) / len(kinds)
    return found


def _learned(
    counts: Mapping[PodShape, float],
    table: NodeTable,
    hardware: PoolHardware,
    like: NodeWorth | None,
) -> Learned:
    classes = tuple(sorted(hardware.cards_of))
    shapes = sorted(counts)
    total = sum(counts[shape] for shape in shapes)
    shares = [counts[shape] / total for shape in shapes]
    alpha = _alpha(shapes, shares, hardware)
    usable = _usable(shapes, classes, table, like)
    pods = []
    for shape, share, could in zip(shapes, shares, usable, strict=True):
        gain = alpha * share * max(could, _LEAST_SHARE) ** _EXPONENT if could else 0.0
        weights = (CARD * counts[shape], _MICRO * gain, _MICRO * (1 - alpha) * share)
        pods.append(_typical(shape, classes, *map(round, weights)))
    return Learned(version=1, classes=classes, pods=tuple(pods))


def _alpha(shapes: Sequence[PodShape], shares: Sequence[float], hardware: PoolHardware) -> float:
    asked = sum(
        share * _milli(shape, hardware) for shape, share in zip(shapes, shares, strict=True)
    )
    cpu = sum(share * shape.cpu_milli for shape, share in zip(shapes, shares, strict=True))
    there = hardware.cpu_milli / (CARD * hardware.cards)
    scarcity = cpu / asked / there if asked and there else 1.0
    return min(max(_ALPHA * scarcity**2, _LEAST_ALPHA), _MOST_ALPHA)


def _milli(shape: PodShape, hardware: PoolHardware) -> float:
    """The thousandths of cards that a pod consumes, as a mean over the cards that it can use."""
    cards = sum(hardware.cards_of.get(name, 0) for name, _ in shape.milli)
    taken = sum(milli * hardware.cards_of.get(name, 0) for name, milli in shape.milli)
    return shape.cards * taken / cards if cards else 0.0


def _usable(
    shapes: Sequence[PodShape], classes: tuple[str, ...], table: NodeTable, like: NodeWorth | None
) -> list[float]:
    """By shape, the share of all idle thousandths that such pods could use."""
    pods = tuple(_typical(shape, classes, 0, 0, 0) for shape in shapes)
    worths = NodeWorth(table, Learned(version=0, classes=classes, pods=pods), 0, like)
    worths.nodes.catch_up()
    return worths.shares()


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
    """The counts of pods in a model."""
    found: dict[PodShape, float] = {}
    for pod in learned.pods:
        milli = zip(learned.classes, pod.milli, strict=True)
        shape = PodShape(pod.cpu_milli, pod.cards, tuple((name, one) for name, one in milli if one))
        found[shape] = found.get(shape, 0.0) + pod.count / CARD
    return found


def _with_version(learned: Learned, version: int) -> Learned:
    return Learned(version=version, classes=learned.classes, pods=learned.pods)


def _hardly_differs(now: Learned, before: Learned) -> bool:
    """Whether two models have almost equal weights."""
    if now.classes != before.classes:
        return False
    return all(_differ(weight_of, now, before) < _MIN_DIFFERENCE for weight_of in (_gain, _waste))


def _differ(weight_of: Callable[[TypicalPod], int], now: Learned, before: Learned) -> float:
    """The difference of two models' weights, as a share of all weights."""
    weights = {(one.cpu_milli, one.cards, one.milli): weight_of(one) for one in before.pods}
    moved = total = 0
    for one in now.pods:
        weight = weight_of(one)
        moved += abs(weight - weights.pop((one.cpu_milli, one.cards, one.milli), 0))
        total += weight
    return (moved + sum(weights.values())) / max(total, 1)


def _gain(pod: TypicalPod) -> int:
    return pod.gain


def _waste(pod: TypicalPod) -> int:
    return pod.waste
