"""A node of dray's, and one of kube-scheduler's."""

import pytest
from tests.unit.claim_controller.owners.world import World

from dray.api.names import OWNER_KUBE_SCHEDULER


@pytest.fixture
def world() -> World:
    made = World()
    made.publish(tainted=True)
    made.warn()
    return made


@pytest.fixture
def theirs() -> World:
    made = World(OWNER_KUBE_SCHEDULER)
    made.publish(tainted=False)
    made.warn()
    return made
