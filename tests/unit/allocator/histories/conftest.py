"""Clusters whose histories are random."""

from collections.abc import Callable

import pytest

from dray_sandbox.histories.actions import SHARING, Action, acted
from dray_sandbox.histories.cluster import Cluster
from dray_sandbox.histories.lane import LaneCluster
from dray_sandbox.histories.sharing import Sharing


@pytest.fixture(params=[Cluster, LaneCluster], ids=["cards", "lane"])
def cluster_of(request: pytest.FixtureRequest, make_world: type) -> Callable[[int], Cluster]:
    """Clusters of so many replicas."""
    return lambda replicas: request.param(make_world, replicas)


@pytest.fixture
def act() -> Callable[[Cluster, int], Action]:
    """One more step of a history."""
    return acted


@pytest.fixture
def sharing_of(make_world: type) -> Callable[[int], Sharing]:
    """Clusters of so many replicas that each read some pools."""
    return lambda replicas: Sharing(make_world, replicas)


@pytest.fixture
def act_sharing() -> Callable[[Cluster, int], Action]:
    """One more step of a history of those."""
    return lambda cluster, step: acted(cluster, step, SHARING)
