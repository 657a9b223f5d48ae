"""Three servers of NATS for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.nats_cluster.servers import NatsCluster, start_nats_cluster

from dray_sandbox.processes import Runner


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[tuple[Runner, NatsCluster]]:
    runner = Runner(tmp_path / "logs")
    try:
        yield runner, await start_nats_cluster(runner, tmp_path)
    finally:
        await runner.stop_all()
