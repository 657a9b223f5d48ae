"""Worlds of one pool, on dedicated nodes or on shared ones."""

from collections.abc import AsyncIterator

import pytest
from tests.integration.claim_controller.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A cluster with one dedicated pool of one node, and claims made as pods appear."""
    made = World()
    await made.base()
    made.make_claims()
    yield made
    await made.close()


@pytest.fixture
async def shared_world() -> AsyncIterator[World]:
    """The same with the pool on shared nodes: pods are gated and kube-scheduler binds."""
    made = World()
    await made.base(dedicated=False)
    made.make_claims()
    yield made
    await made.close()


@pytest.fixture
def bare_world() -> type[World]:
    """For tests that lay out their cluster themselves."""
    return World
