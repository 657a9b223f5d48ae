"""PodGroups of Kubernetes on a control plane that has them: 1.37 with two feature gates on.

``make test-real K8S=1.37 TESTS=tests/native_groups`` runs this; ``make proof`` does so.
"""

import asyncio
from contextlib import suppress

import pytest
from tests.scenarios.objects import scenarios
from tests.scenarios.stacks import StackReader, StackScenario

from dray_sandbox.controlplane.build import wanted_minor
from dray_sandbox.layout import StackOptions, simulated_nodes
from dray_sandbox.stack import Stack
from tools.retry import connect_with_retries

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

OLDEST = 37
GATES = ("GenericWorkload", "DRAWorkloadResourceClaims")


async def test_scenarios_of_native_groups_end_as_they_say() -> None:
    minor = int(wanted_minor().split(".")[1])
    assert minor >= OLDEST, f"1.{minor} has no such PodGroups: run this with K8S=1.{OLDEST}"
    chosen = [one for one in scenarios() if "native" in one.stacks]
    assert chosen
    pools = [f"pool-{number}" for number in range(len(chosen))]
    options = StackOptions(
        name="native-groups",
        control_plane="real",
        serve=("scheduling.k8s.io/v1beta1",),
        feature_gates=GATES,
        nodes=simulated_nodes(len(chosen), gpus=4, models=("A100",), pools=pools),
        agents_in_one=True,
    )
    async with Stack(options) as stack:
        kube = await connect_with_retries(stack.record.kubeconfig, user_agent="dray-test")
        reader = StackReader(kube, native=True)
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
    assert [problem for problems in found for problem in problems] == []
