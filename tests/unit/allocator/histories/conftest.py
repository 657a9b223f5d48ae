"""Random histories of a small cluster, through the allocator's real decisions.

A fenced log and a facts stream stand in for the bus, and an executor for the claim-controller: it
commits late, never, or voids. Two to four replicas all believe they serve, die and begin again;
claims, pods, slices and nodes come, change and go; facts come late, twice, and in another order
than the objects changed.

``truth`` is what is, ``replicas`` learn of it late, ``cluster`` says what must hold all the while;
``second_driver`` has another driver's devices, ``repeated_facts`` more kinds of facts that are
published again, ``sharing`` replicas that read some pools only; ``actions`` is what may happen.
"""

from collections.abc import Callable

import pytest
from tests.unit.allocator.histories.actions import ODD, SHARING, Action, acted
from tests.unit.allocator.histories.cluster import Cluster
from tests.unit.allocator.histories.repeated_facts import RepeatedFactsCluster
from tests.unit.allocator.histories.second_driver import SecondDriverCluster
from tests.unit.allocator.histories.sharing import Sharing


@pytest.fixture(params=[Cluster, SecondDriverCluster], ids=["cards", "second-driver"])
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


@pytest.fixture
def odd_of(make_world: type) -> Callable[[int], RepeatedFactsCluster]:
    """Clusters of so many replicas with more kinds of facts, published again and again."""
    return lambda replicas: RepeatedFactsCluster(make_world, replicas)


@pytest.fixture
def act_oddly() -> Callable[[Cluster, int], Action]:
    """One more step of a history of those."""
    return lambda cluster, step: acted(cluster, step, ODD)
