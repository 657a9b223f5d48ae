"""What may happen next in a history, and how often."""

from collections.abc import Callable
from random import Random

from tests.unit.allocator.histories.cluster import Cluster
from tests.unit.allocator.histories.repeated_facts import RepeatedFactsCluster
from tests.unit.allocator.histories.sharing import Sharing

Action = Callable[[Cluster, Random], None]
ACTIONS: dict[Action, int] = {
    Cluster.submit: 6,
    Cluster.turn: 14,
    Cluster.commit: 12,
    Cluster.void: 4,
    Cluster.pass_time: 4,
    Cluster.listen: 3,
    Cluster.late_append: 3,
    Cluster.delete_pod: 1,
    Cluster.delete_claim: 2,
    Cluster.clear: 2,
    Cluster.move: 1,
    Cluster.moved: 1,
    Cluster.change_slices: 2,
    Cluster.lose_node: 1,
    Cluster.sum_up: 2,
    Cluster.fall_behind: 1,
    Cluster.come_up: 4,
    Cluster.restart: 1,
    Cluster.trim: 3,
}
SHARING: dict[Action, int] = {
    **ACTIONS,
    Sharing.subscribe: 2,  # type: ignore[dict-item]
    Sharing.read_earlier: 12,  # type: ignore[dict-item]
    Cluster.submit: 8,
    Cluster.turn: 24,
    Cluster.commit: 12,
    Cluster.clear: 2,
    Cluster.delete_claim: 1,
    Cluster.move: 3,
    Cluster.moved: 8,
}

ODD: dict[Action, int] = {
    **ACTIONS,
    RepeatedFactsCluster.taint: 2,  # type: ignore[dict-item]
    RepeatedFactsCluster.share: 3,  # type: ignore[dict-item]
    RepeatedFactsCluster.retype: 2,  # type: ignore[dict-item]
    RepeatedFactsCluster.decide_otherwise: 1,  # type: ignore[dict-item]
}


def acted(cluster: Cluster, step: int, actions: dict[Action, int] | None = None) -> Action:
    """One more step of a history; it says what happens, and to whom."""
    random, among = Random(step), ACTIONS if actions is None else actions
    (action,) = random.choices(list(among), list(among.values()))
    action(cluster, random)
    return action
