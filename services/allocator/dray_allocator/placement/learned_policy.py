"""What a pool learns of its pods, and how they are scored by it."""

from dray_allocator.nodes.ratings import Scoring
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.fragmentation.workload_model import WorkloadModel
from dray_allocator.state.domain import Domain
from dray_allocator.state.state import AllocatorState


def learned_scoring(state: AllocatorState, domain: Domain) -> Scoring | None:
    """By what was learned; None where nothing was."""
    learned = domain.learned
    if learned is None:
        return None
    domain.landscapes.set(state.tables.of(domain.name), learned)
    return domain.landscapes.scoring


def see(domain: Domain, wanted: PodRequest) -> None:
    """A pod asks for the first time."""
    learner = _learner(domain)
    learner.see(wanted.signature, wanted.pod.needs.cpu_milli, wanted.asks)


def is_due(state: AllocatorState, domain: Domain) -> bool:
    """Whether it is time to learn again."""
    cards = state.tables.of(domain.name).cards
    return domain.learned is None or _learner(domain).is_due(cards)


def relearn(state: AllocatorState, domain: Domain) -> None:
    """Learn again: what is learned counts at once, and is written with the next decision."""
    table, nodes = state.tables.of(domain.name), state.facts.nodes
    learned = _learner(domain).learn(
        table,
        state.selectors,
        lambda name: nodes[name].node.cpu_milli,
        domain.landscapes.latest,
    )
    if learned is not None:
        domain.unwritten = learned


def _learner(domain: Domain) -> WorkloadModel:
    if domain.learner is None:
        domain.learner = WorkloadModel(domain.learned)
    return domain.learner
