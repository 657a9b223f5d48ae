"""The score of every placement that a pool or a pod may ask for."""

from functools import lru_cache

from dray.api.placement import BINPACK, Placement
from dray_allocator.nodes.ratings import LoadScore, Scoring
from dray_allocator.scoring.weighted import WeighedScore

FRAGMENTATION_AWARE = LoadScore(node_fills=True, card_fills=True)
"""What FragmentationAware does before it has learned anything: to fill, as CompactFirst does."""


@lru_cache(maxsize=256)
def scoring_of(placement: Placement) -> Scoring:
    """How a placement rates nodes and cards."""
    load = by_load(placement)
    if placement.is_aware or not placement.weights:
        return _the_same(load)
    weights = placement.weights
    return Scoring((load, weights), lambda table, plan: WeighedScore(plan, load, weights))


def by_load(placement: Placement) -> LoadScore:
    """The same without weights and whatever is learned: by the share in use."""
    if placement.is_aware:
        return FRAGMENTATION_AWARE
    return LoadScore(placement.node == BINPACK, placement.gpu == BINPACK)


def _the_same(score: LoadScore) -> Scoring:
    """For pods of all shapes."""
    return Scoring(score, lambda table, plan: score)
