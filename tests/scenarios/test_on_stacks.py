"""Scenarios of groups on one stack at the same time, each in a namespace and pool of its own."""

import asyncio
from contextlib import suppress

import pytest
from tests.scenarios.objects import scenarios
from tests.scenarios.stacks import StackReader, StackScenario

from dray.api.names import POOL_LABEL
from dray_sandbox.layout import ControlPlane, SimulatedNode, StackOptions
from dray_sandbox.stack import Stack
from tools.retry import connect_with_retries

# The sandbox, too: it takes as long as a hundred other tests.
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.mark.parametrize("control_plane", ["sandbox", "real"])
async def test_scenarios_end_as_they_say_on_a_stack(control_plane: ControlPlane) -> None:
    chosen = [one for one in scenarios() if control_plane in one.stacks]
    pools = [f"pool-{number}" for number in range(len(chosen))]
    options = StackOptions(
        name=f"scenarios-{control_plane}",
        control_plane=control_plane,
        nodes=tuple(
            SimulatedNode(f"{pool}-{name}", "A100", gpus, {POOL_LABEL: pool})
            for scenario, pool in zip(chosen, pools, strict=True)
            for name, gpus in scenario.nodes.items()
        ),
        agents_in_one=True,
    )
    async with Stack(options) as stack:
        kube = await connect_with_retries(stack.record.kubeconfig, user_agent="dray-test")
        reader = StackReader(kube)
        reading = asyncio.create_task(reader.run())
        try:
            runs = [
                StackScenario(kube, reader, scenario, pool).run()
                for scenario, pool in zip(chosen, pools, strict=True)
            ]
            found = await asyncio.gather(*runs)
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
            await kube.close()
    problems = [problem for problems in found for problem in problems]
    assert not problems, "\n".join(problems)
