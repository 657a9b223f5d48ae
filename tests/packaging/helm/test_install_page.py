"""An administrator who follows docs/install.md reaches a running pod with three commands, and then
follows the pages of upgrades and the uninstallation; with Helm 4 and Helm 3.

The tests are steps of one story.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.command_blocks import commands_of
from tests.packaging.helm.installation import (
    INSTALLED,
    NAMESPACE,
    ROOT,
    SIMULATED,
    Cluster,
    cluster,
    run,
)

from dray.api.names import GPU_LABEL
from dray_sandbox.controlplane.build import find_kubectl

# The first time-out counts: Helm 3 may have to be built.
pytestmark = [pytest.mark.timeout(1200), *INSTALLED, pytest.mark.long]


def commands() -> list[list[str]]:
    """Those of the first block."""
    return [line.split() for line in commands_of("docs/install.md")[:3]]


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=[4, 3], ids=lambda major: f"helm-{major}"
)
async def empty(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A cluster for this module."""
    async with cluster("page", helm=request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def of_the_cluster(empty: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """helm and kubectl are found, work on the cluster, and read files of the checkout."""
    kubectl = find_kubectl()
    assert kubectl is not None
    folders = (str(Path(program).parent) for program in (empty.helm_program, kubectl))
    monkeypatch.setenv("PATH", os.pathsep.join((*folders, os.environ["PATH"])))
    monkeypatch.setenv("KUBECONFIG", empty.kubeconfig)
    monkeypatch.chdir(ROOT)
    return


async def test_the_first_command_and_nothing_else_installs_node_agents_that_idle(
    empty: Cluster,
) -> None:
    """This machine has no GPUs: the first pod waits, and everything else is ready."""
    install, apply, _ = commands()
    assert " ".join(install) == (
        f"helm install dray ./deploy/helm/dray --namespace {NAMESPACE} --create-namespace"
    )
    await run(install, within_s=300)
    await empty.ready()
    await run(apply)

    async def waits_for_nodes() -> bool:
        found = await empty.objects("bindrequests")
        return any("no node to allocate on" in str(one.get("status")) for one in found)

    await empty.until(waits_for_nodes, "why the pod waits")
    agents = await empty.objects(
        "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=dray-node-agent"
    )
    nodes = await empty.objects("nodes")
    assert {one["spec"]["nodeName"] for one in agents} == {one["metadata"]["name"] for one in nodes}
    assert all(one["status"]["containerStatuses"][0]["ready"] for one in agents)
    assert all(one["status"]["containerStatuses"][0]["restartCount"] == 0 for one in agents)
    assert not any(one["spec"].get("devices") for one in await empty.objects("resourceslices"))
    assert not any(GPU_LABEL in one["metadata"]["labels"] for one in nodes)


async def test_nodes_that_get_gpus_are_labelled_and_run_the_pod_that_waits(empty: Cluster) -> None:
    *_, wait = commands()
    await empty.upgrade(*SIMULATED)
    await run(wait, within_s=300)

    async def are_labelled() -> bool:
        nodes = await empty.objects("nodes")
        (pool,) = await empty.objects("gpupool", "default")
        labelled = all(GPU_LABEL in one["metadata"]["labels"] for one in nodes)
        return labelled and bool(pool["status"]["nodes"] == len(nodes))

    await empty.until(are_labelled, "both nodes labelled and in the pool")
    await empty.kubectl("delete", "pod", "my-gpu-workload")
    await empty.uninstall()


async def test_three_commands_lead_to_a_running_pod(empty: Cluster) -> None:
    install, apply, wait = commands()
    await run([*install, *SIMULATED], within_s=300)
    await run(apply)
    await run(wait, within_s=300)

    environment = await empty.kubectl("exec", "my-gpu-workload", "--", "env")
    assert "NVIDIA_VISIBLE_DEVICES=GPU-" in environment


async def test_the_pages_of_upgrades_and_the_uninstallation_hold(empty: Cluster) -> None:
    """To the letter. A rollback to the first release goes back to a registration without any
    authority, and pods are admitted all the same."""
    upgrade, test, rollback, *_ = commands_of("docs/upgrade.md")
    assert [one.split()[1] for one in (upgrade, test, rollback)] == ["upgrade", "test", "rollback"]
    for command in (upgrade, test, rollback, test):
        await run(command.split(), within_s=300)
        await empty.ready()

    await empty.kubectl("delete", "pod", "my-gpu-workload")
    _, uninstall, *_ = commands_of("docs/uninstall.md")
    await run(uninstall.split(), within_s=300)
    kinds = "deployments,services,secrets,configmaps"
    assert "dray" not in await empty.kubectl("get", kinds, "-n", NAMESPACE, "-o", "name")
