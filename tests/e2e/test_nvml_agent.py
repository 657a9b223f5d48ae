"""A node-agent on a machine with NVIDIA's driver, which a library built here plays."""

import asyncio
import dataclasses
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.request import urlopen

import pytest
import pytest_asyncio
from tests.nvml_shim.building import Machine, mig_uuid, uuid

from dray.api.names import HEALTH_TAINT, POOL_LABEL
from dray.kube.ports import SLICES, Kube, Object
from dray_sandbox.layout import SimulatedNode, StackOptions
from dray_sandbox.stack import Stack
from tools.retry import connect_with_retries

pytestmark = [pytest.mark.asyncio(loop_scope="module")]
NODE, AGENT = "sim-1", "node-agent-sim-1"
BOUND_S = 60.0


@dataclasses.dataclass
class NvmlNode:
    """The node, and what the driver of its machine says."""

    stack: Stack
    kube: Kube
    machine: Machine

    async def devices(self) -> dict[str, Object]:
        """What is published, by UUID."""
        listed = await self.kube.list(SLICES, field_selector=f"spec.nodeName={NODE}")
        devices = [one for part in listed.objects for one in part["spec"].get("devices") or ()]
        return {one["attributes"]["uuid"]["string"]: one for one in devices}

    async def health(self) -> dict[str, Any]:
        """The agent's readiness page."""
        url = self.stack.runner.program(AGENT).health_url.replace("healthz", "readyz")

        def read() -> dict[str, Any]:
            try:
                with urlopen(url, timeout=5) as answer:
                    return dict(json.load(answer))
            except OSError as error:
                body = getattr(error, "read", lambda: b"{}")()
                return dict(json.loads(body or b"{}"))

        return await asyncio.to_thread(read)

    async def until(self, holds: Callable[[], Awaitable[Any]], what: str) -> Any:
        began_s = time.monotonic()
        while not (value := await holds()):
            if time.monotonic() - began_s > BOUND_S:
                pytest.fail(f"not within {BOUND_S} s: {what}; readiness: {await self.health()}")
            await asyncio.sleep(0.05)
        return value


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NvmlNode]:
    """A stack whose only agent reads NVML."""
    machine = Machine(tmp_path_factory.mktemp("machine")).make()
    machine.install_driver()
    options = StackOptions(
        f"nvml{os.environ.get('PYTEST_XDIST_WORKER', '')}",
        nodes=(SimulatedNode(NODE, labels={POOL_LABEL: "one"}),),
    )
    async with Stack(options) as stack:
        agent = stack.runner.program(AGENT)
        environment = {
            **agent.environment,
            **machine.environment,
            "DRAY_NODE__NVML_TIMEOUT": "2s",
            "DRAY_NODE__USAGE": "200ms",
        }
        await stack.runner.replace(dataclasses.replace(agent, environment=environment))
        kube = await connect_with_retries(stack.record.kubeconfig, user_agent="dray-tests")
        try:
            yield NvmlNode(stack, kube, machine)
        finally:
            await kube.close()


async def test_cards_are_published_with_what_nvml_says(node: NvmlNode) -> None:
    async def published() -> bool:
        return set(await node.devices()) == {uuid(0), uuid(1)}

    await node.until(published, "both cards")
    card = (await node.devices())[uuid(0)]
    attributes = card["attributes"]
    assert attributes["model"] == {"string": "A100"}
    assert attributes["productName"] == {"string": node.machine.product}
    assert attributes["driverVersion"] == {"version": "535.104.5"}
    assert attributes["cudaComputeCapability"] == {"version": "8.0.0"}
    assert card["capacity"]["tflops"]["value"] == "312"
    assert card["capacity"]["vram"]["value"] == "40Gi"


async def test_the_use_of_a_card_is_on_the_metrics_page(node: NvmlNode) -> None:
    node.machine.say(("used", 1, 3072, 85, 40, 61, 250500))
    url = node.stack.runner.program(AGENT).health_url.rpartition("/")[0] + "/metrics"

    async def shown() -> bool:
        text = await asyncio.to_thread(lambda: urlopen(url, timeout=5).read().decode())
        lines = {line.split("{")[0]: line for line in text.splitlines() if uuid(1) in line}
        used = lines.get("DCGM_FI_DEV_FB_USED", "")
        return used.endswith(" 3072.0") and lines["DCGM_FI_DEV_GPU_UTIL"].endswith(" 85.0")

    await node.until(shown, "memory and time in use")
    node.machine.take_back("used")


async def test_mig_instances_come_and_go_with_their_counters(node: NvmlNode) -> None:
    name = f"{node.machine.product} MIG 3g.20gb"
    node.machine.say(
        ("mig", 0, mig_uuid(0, 1), name, 19968, 1, 0, 3),
        ("mig", 0, mig_uuid(0, 2), name, 19968, 2, 0, 3),
    )

    async def split() -> bool:
        # The slice with the counters may come after the one with the devices.
        listed = await node.kube.list(SLICES, field_selector=f"spec.nodeName={NODE}")
        sets = [one for part in listed.objects for one in part["spec"].get("sharedCounters") or ()]
        counted = [one["counters"] for one in sets] == [{"instances": {"value": "2"}}]
        return counted and {mig_uuid(0, 1), mig_uuid(0, 2)} <= set(await node.devices())

    await node.until(split, "the instances and their counters are published")
    node.machine.take_back("mig")

    async def whole() -> bool:
        return set(await node.devices()) == {uuid(0), uuid(1)}

    await node.until(whole, "the instances are gone")


async def test_an_xid_taints_its_card(node: NvmlNode) -> None:
    node.machine.say(("event", 0, 1, 79))

    async def tainted() -> bool:
        taints = (await node.devices())[uuid(1)].get("taints") or ()
        return any((one["key"], one["value"]) == (HEALTH_TAINT, "xid-79") for one in taints)

    await node.until(tainted, "the taint")
    assert not any(
        one["key"] == HEALTH_TAINT for one in (await node.devices())[uuid(0)].get("taints") or ()
    )


async def test_a_driver_that_hangs_is_a_problem_of_readiness_and_delays_no_end(
    node: NvmlNode,
) -> None:
    node.machine.say(("hang", "nvmlDeviceGetMemoryInfo"), ("hang", "nvmlDeviceGetEccMode"))

    async def unready() -> bool:
        return "the driver hangs" in str((await node.health()).get("checks", {}).get("gpus"))

    await node.until(unready, "not ready")
    assert len(await node.devices()) == 2
    await node.stack.runner.stop(AGENT)
    log = await asyncio.to_thread(node.stack.runner.log(AGENT).read_text)
    assert "stopped" in log
    assert "loops did not end in time" not in log
    node.machine.take_back("hang")
    await node.stack.restart(AGENT)

    async def ready() -> bool:
        return bool((await node.health()).get("ready"))

    await node.until(ready, "ready again")
