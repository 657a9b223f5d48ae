"""Three servers without volumes are replaced one by one, as a rollout of the chart does it."""

import re
import urllib.error
import urllib.request
from asyncio import to_thread
from pathlib import Path

import pytest
from tests.integration.nats_cluster.servers import connect_as, make_streams, until

from dray.bus.ports import BusUnavailableError
from dray.bus.topology import FACTS_STREAM
from dray.messages.base import encode
from dray.messages.facts import Tick
from dray_sandbox.nats_server import ADMIN

pytestmark = pytest.mark.timeout(300)

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "dray" / "templates" / "nats.yaml"


def startup_probe() -> str:
    """The path that must answer before the next server is replaced."""
    (path,) = re.findall(r'startupProbe:\s+httpGet: \{path: "?([^",]+)', CHART.read_text())
    return str(path)


async def test_a_rollout_waits_until_a_new_server_has_its_copies_of_the_streams(servers) -> None:
    runner, cluster = servers
    owner = await connect_as(cluster, ADMIN)
    await make_streams(owner)
    ticks = [encode(Tick(revision=one, now_unix_s=1.0), source="test") for one in range(1, 200)]
    for tick in ticks:
        await owner.publish(tick)
    before = await owner.state(FACTS_STREAM)
    assert before is not None

    for name in reversed(cluster.names):
        url = f"http://{cluster.monitors[name]}{startup_probe()}"

        async def started(url: str = url) -> bool:
            try:
                return await to_thread(lambda: urllib.request.urlopen(url).status == 200)
            except urllib.error.URLError:
                return False

        await runner.stop(name)
        await cluster.wipe(name)
        await runner.restart(name)
        await until(started)

    async def is_there() -> bool:
        try:
            state = await owner.state(FACTS_STREAM)
        except BusUnavailableError:
            return False
        return state is not None and before.last_sequence == state.last_sequence

    await until(is_there)
    await owner.close()
