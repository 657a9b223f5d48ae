"""Parts of a node end and return; pods that run don't notice, and no GPU is lost."""

import pytest
from tests.real_node.cluster import (
    DEDICATED,
    GPU_VARIABLE,
    NODE_OF,
    REAL_NODE,
    RealCluster,
    node_in,
)

pytestmark = REAL_NODE

NODE = NODE_OF[DEDICATED]


@pytest.mark.parametrize("program", ["kubelet", "containerd", "node-agent", "kube-proxy"])
async def test_a_killed_program_returns_and_running_pods_stay(
    real_cluster: RealCluster, program: str
) -> None:
    names = (f"before-{program}", f"after-{program}")
    await real_cluster.submit(names[0], DEDICATED)
    await real_cluster.running(names[0])
    containers = await real_cluster.containers(names[0])
    gpus = (await real_cluster.environment(names[0]))[GPU_VARIABLE]

    await real_cluster.restart(f"{program}-{NODE}")
    await real_cluster.submit(names[1], DEDICATED, gpu_count="2")
    await real_cluster.running(names[1])

    await real_cluster.node_is_ready(NODE)
    assert await real_cluster.containers(names[0]) == containers
    assert (await real_cluster.environment(names[0]))[GPU_VARIABLE] == gpus
    await real_cluster.recounted()


async def test_pods_that_are_prepared_while_containerd_is_killed_run_when_it_is_back(
    real_cluster: RealCluster,
) -> None:
    names = [f"mid-prepare-{number}" for number in range(4)]
    for name in names:
        await real_cluster.submit(name, DEDICATED)

    async def one_is_prepared() -> bool:
        return bool(real_cluster.cdi_files(NODE))

    await real_cluster.until(one_is_prepared, "a claim is prepared")
    await real_cluster.restart(f"containerd-{NODE}")
    await real_cluster.running(*names)
    await real_cluster.recounted()
    await real_cluster.delete(*names)
    assert real_cluster.cdi_files(NODE) == []


async def test_cdi_files_that_are_lost_are_written_again_by_the_next_agent(
    real_cluster: RealCluster,
) -> None:
    await real_cluster.submit("keeps", DEDICATED)
    await real_cluster.running("keeps")
    (file,) = real_cluster.cdi_files(NODE)
    content = file.read_text()
    file.unlink()

    await real_cluster.restart(f"node-agent-{NODE}")
    assert file.read_text() == content
    await real_cluster.delete("keeps")
    assert real_cluster.cdi_files(NODE) == []


async def test_pods_of_a_node_that_reboots_run_again_with_their_gpus(
    real_cluster: RealCluster,
) -> None:
    """Also if the power cut takes the agent's last checkpoint back."""
    checkpoint = real_cluster.node_files(NODE) / "dray" / "node-agent" / "checkpoint.json"
    names = ("reboots-1", "reboots-2")
    for name in names:
        earlier = checkpoint.read_bytes()
        await real_cluster.submit(name, DEDICATED)
        await real_cluster.running(name)
    assert checkpoint.read_bytes() != earlier
    gpus = {name: (await real_cluster.environment(name))[GPU_VARIABLE] for name in names}
    containers = {name: await real_cluster.containers(name) for name in names}

    await real_cluster.stack.stop_node(NODE)
    assert real_cluster.cdi_files(NODE)  # /run is emptied when the node starts
    checkpoint.write_bytes(earlier)
    await real_cluster.stack.start_node(node_in(DEDICATED))

    for name in names:

        async def runs_again() -> bool:
            return await real_cluster.containers(name) != containers[name]  # noqa: B023

        await real_cluster.until(runs_again, f"another container of {name}")
    await real_cluster.ready(*names)
    for name in names:
        assert (await real_cluster.environment(name))[GPU_VARIABLE] == gpus[name]
    await real_cluster.recounted()
