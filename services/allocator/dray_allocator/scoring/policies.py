"""The scoring of each placement policy."""

from functools import lru_cache

from dray.api.placement import BINPACK, Placement
from dray_allocator.nodes.ratings import LoadScore, Scoring
from dray_allocator.scoring.weighted import WeightedScore

_FRAGMENTATION_AWARE = LoadScore(node_fills=True, card_fills=True)
"""FragmentationAware without a workload model: like CompactFirst."""


@lru_cache(maxsize=256)
def scoring_of(placement: Placement) -> Scoring:
    """The scoring of a placement."""
    load = by_load(placement)
    if placement.is_aware or not placement.weights:
        return _constant(load)
    weights = placement.weights
    return Scoring((load, weights), lambda table, plan: WeightedScore(plan, load, weights))


def by_load(placement: Placement) -> LoadScore:
    """The load score of a placement, without weights and workload model."""
    if placement.is_aware:
        return _FRAGMENTATION_AWARE
    return LoadScore(placement.node == BINPACK, placement.gpu == BINPACK)


def _constant(score: LoadScore) -> Scoring:
    """A scoring with one score for all plans."""
    return Scoring(score, lambda table, plan: score)
