"""The workload model of a pool, and the scoring by it."""

from collections.abc import Sequence

from dray_allocator.nodes.ratings import Scoring
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.fragmentation.workload_model import WorkloadModel
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


def learned_scoring(state: AllocatorState, domain: SchedulingDomain) -> Scoring | None:
    """The scoring by the model; None if there is no model."""
    learned = domain.learned
    if learned is None:
        return None
    domain.node_worths.set(state.tables.of(domain.name), learned)
    return domain.node_worths.scoring


def observe(domain: SchedulingDomain, wanted: PodRequest) -> None:
    """Add a new pod to the model, unless it is a CPU task of a gang, whose claim asks for no
    device: such a pod goes to nodes without cards first, so it takes less cpu from cards than the
    model would expect.

    Pods without claims, which exist only in recorded traces, count like pods with devices.
    """
    pattern, pod = wanted.pattern, wanted.pod
    if pattern.needs_devices or not pod.claims:
        _model(domain).observe(pattern.signature, pod.needs.cpu_milli, pattern.asks)


def learn_from(
    state: AllocatorState, domain: SchedulingDomain, started: Sequence[PodRequest]
) -> None:
    """Add the pods of a group that starts to the model; later decisions may use a new one."""
    aware = [one for one in started if one.pattern.is_aware]
    for one in aware:
        observe(domain, one)
    if aware and is_due(state, domain):
        relearn(state, domain)


def is_due(state: AllocatorState, domain: SchedulingDomain) -> bool:
    """Whether to compute the model again."""
    cards = state.tables.of(domain.name).cards
    return domain.learned is None or _model(domain).is_due(cards)


def relearn(state: AllocatorState, domain: SchedulingDomain) -> None:
    """Compute the model again. It is used at once, and written with the next decision."""
    table, nodes = state.tables.of(domain.name), state.facts.nodes
    learned = _model(domain).learn(
        table,
        state.selectors,
        lambda name: nodes[name].node.cpu_milli,
        domain.node_worths.latest,
    )
    if learned is not None:
        domain.unwritten = learned


def _model(domain: SchedulingDomain) -> WorkloadModel:
    if domain.workload_model is None:
        domain.workload_model = WorkloadModel(domain.learned)
    return domain.workload_model
