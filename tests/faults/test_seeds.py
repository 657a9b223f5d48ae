"""Whole stacks under seeded faults, judged from Kubernetes' objects alone.

``DRAY_FAULTS_SEEDS=20`` runs that many seeds from ``DRAY_FAULTS_FIRST`` (0) on. Seeds share a
stack: each begins and ends with nothing on it, and after a failed one the stack is started again.
"""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tools.faults.fault_stack import FaultStack
from tools.faults.plan import TRUSTED, draw
from tools.faults.run import FaultTrial

FIRST = int(os.environ.get("DRAY_FAULTS_FIRST", "0"))
SEEDS = os.environ.get("DRAY_FAULTS_SEEDS")


def seeds(default: int) -> range:
    return range(FIRST, FIRST + int(SEEDS or default))


CASES = [pytest.param("sandbox", seed, id=f"sandbox-{seed}") for seed in seeds(2)] + [
    pytest.param("real", seed, id=f"real-{seed}", marks=pytest.mark.real) for seed in seeds(3)
]
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def arenas() -> AsyncIterator[dict[str, FaultStack]]:
    """One stack per control plane for all seeds, started when first needed."""
    arenas = {"sandbox": FaultStack("sandbox"), "real": FaultStack("real")}
    left: list[str] = []
    try:
        yield arenas
    finally:
        for arena in arenas.values():
            left += await arena.stop()
    assert not left


@pytest.mark.parametrize(("control_plane", "seed"), CASES)
async def test_every_pod_is_placed_once_whatever_dies_meanwhile(
    arenas: dict[str, FaultStack], control_plane: str, seed: int
) -> None:
    arena = arenas[control_plane]
    stack = await arena.stack()
    plan = draw(seed, stack.runner.pids().keys() - TRUSTED)
    outcome = await FaultTrial(stack, plan).run()
    if outcome.failures:
        kept = arena.copy_logs(seed)
        await arena.stop()
        again = f"make faults FIRST={seed} SEEDS=1 CONTROL_PLANE={control_plane}"
        pytest.fail("\n".join([*outcome.lines, f"logs: {kept}", f"again: {again}"]), pytrace=False)
    assert outcome.bound
