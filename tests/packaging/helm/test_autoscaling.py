"""Allocators that Kubernetes' own autoscaler scales by the length of their queues.

The tests are steps of one story.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.packaging.helm.custom_metrics import custom_metrics
from tests.packaging.helm.installation import (
    CHART,
    INSTALLED,
    NAMESPACE,
    OF_DECISIONS,
    RELEASE,
    SIMULATED,
    Cluster,
    cluster,
    gpu_pod,
)

from dray_sandbox.controlplane.build import find_kubectl

pytestmark = [*INSTALLED, pytest.mark.long, OF_DECISIONS]

AUTOSCALING = (
    *SIMULATED,
    *("--set", "allocator.autoscaling.enabled=true"),
    *("--set", "allocator.autoscaling.maxReplicas=4"),
    *("--set", "allocator.autoscaling.waitingPodsPerReplica=2"),
)
ADDED: dict[str, int] = {}
"""By metric, what the first allocator shows in addition: pods are tried within milliseconds, too
soon to be seen."""
ALLOCATOR = ("deployment", "dray-allocator", "-n", NAMESPACE)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A cluster with two allocators, and an adapter of custom metrics."""
    async with cluster("autoscaling", nodes=1) as made:
        with custom_metrics(made, tmp_path_factory.mktemp("adapter"), ADDED) as manifests:
            await made.apply(*manifests)
            await made.install(*SIMULATED)
            await made.ready()
            yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def replicas_seen(
    installed: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Path]:
    """A file with ``spec.replicas`` of the allocators after every change, one a line."""
    file = tmp_path_factory.mktemp("replicas") / "seen"
    watch = ("--watch", "-o", r"jsonpath={.spec.replicas}{'\n'}")
    with file.open("w") as seen:
        process = await asyncio.create_subprocess_exec(
            str(find_kubectl()), "--kubeconfig", installed.kubeconfig, "get", *ALLOCATOR, *watch,
            stdout=seen,
        )  # fmt: skip
        yield file
        process.terminate()
        await process.wait()


async def replicas(installed: Cluster) -> int:
    (found,) = await installed.objects(*ALLOCATOR)
    return int(found["spec"]["replicas"])


async def scaled(installed: Cluster, wanted: int) -> None:
    async def reached() -> bool:
        return await replicas(installed) == wanted

    await installed.until(reached, f"{wanted} allocators wanted")
    await installed.ready()


async def test_the_number_of_allocators_stays_when_autoscaling_begins(
    installed: Cluster, replicas_seen: Path
) -> None:
    await installed.upgrade(*AUTOSCALING)
    await installed.kubectl(
        "wait", "--for=condition=ScalingActive", "hpa/dray-allocator", "-n", NAMESPACE,
        "--timeout=120s",
    )  # fmt: skip

    await installed.ready()
    assert await replicas(installed) == 2


async def test_pods_that_are_to_be_tried_add_allocators_and_those_that_fit_nowhere_do_not(
    installed: Cluster, replicas_seen: Path
) -> None:
    """Five pods are to be tried, two for each allocator: three. With the others it were four."""
    await installed.apply(*(gpu_pod(f"waits-{n}", tflops="1000000") for n in range(5)))

    async def they_wait() -> bool:
        (pool,) = await installed.objects("gpupool", "default")
        return bool(pool["status"].get("waitingPods") == 5)

    await installed.until(they_wait, "five pods that fit nowhere")
    ADDED["dray_allocator_active_pods"] = 5

    await scaled(installed, 3)


async def test_an_upgrade_keeps_what_the_autoscaler_wants(
    installed: Cluster, replicas_seen: Path
) -> None:
    await installed.helm(
        "upgrade", RELEASE, str(CHART), "-n", NAMESPACE, *AUTOSCALING, "--set",
        "logLevel=debug",
    )  # fmt: skip
    await installed.ready()

    seen = await asyncio.to_thread(replicas_seen.read_text)
    assert set(seen.split()) == {"2", "3"}
