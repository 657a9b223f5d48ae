"""State is lost: the bus loses its volume, Kubernetes returns to an older state of its objects."""

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.conformance.stand import results_of
from tests.real_node.cluster import DEDICATED, GPU_VARIABLE, GPUS, NODE_OF, REAL_NODE, RealCluster

from dray.bus.topology import FACTS_STREAM
from dray.messages.base import decode
from dray.messages.facts import ClaimObserved

pytestmark = REAL_NODE

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")


async def test_a_bus_that_lost_its_volume_is_filled_from_kubernetes(
    real_cluster: RealCluster,
) -> None:
    await real_cluster.submit("before", DEDICATED, gpu_count="2")
    await real_cluster.running("before")
    containers = await real_cluster.containers("before")

    began_s = time.monotonic()
    await real_cluster.stack.empty_nats()
    emptied_s = time.monotonic() - began_s
    await real_cluster.submit("after", DEDICATED, gpu_count=str(GPUS))
    await real_cluster.running("after")
    print(
        f"NATS ran again after {emptied_s:.1f} s with an empty volume; "
        f"a new pod ran {time.monotonic() - began_s - emptied_s:.1f} s later"
    )

    assert await real_cluster.containers("before") == containers
    await real_cluster.recounted()


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


@asynccontextmanager
async def small_disk(cluster: RealCluster) -> AsyncIterator[Path]:
    """NATS with an empty store on a file system of 64 MB, then on the old one again."""
    store = cluster.stack.directory / "jetstream"
    await asyncio.to_thread(_run, "mount", "-t", "tmpfs", "-o", "size=64m", "dray-test", str(store))
    try:
        await cluster.stack.empty_nats()
        yield store
    finally:
        await cluster.stack.runner.stop("nats-server")
        await asyncio.to_thread(_run, "umount", str(store))
        await cluster.stack.empty_nats()


async def test_nothing_is_decided_while_the_disk_of_nats_is_full_and_nothing_is_lost(
    real_cluster: RealCluster,
) -> None:
    log = real_cluster.stack.directory / "logs" / "claim-controller.log"

    async def is_logged() -> bool:
        return "NATS stores nothing" in log.read_text()

    async with small_disk(real_cluster) as disk:
        await real_cluster.submit("before", DEDICATED, gpu_count="2")
        await real_cluster.running("before")
        containers = await real_cluster.containers("before")
        rest = disk / "rest"
        with pytest.raises(OSError, match="No space left"):
            await asyncio.to_thread(rest.write_bytes, bytes(2**26))

        await real_cluster.submit("waits", DEDICATED)
        await real_cluster.until(is_logged, "the claim-controller reports that nothing is stored")
        waiting = (await real_cluster.pods())["waits"]
        assert not waiting["spec"].get("nodeName")
        assert await real_cluster.containers("before") == containers

        rest.unlink()
        await real_cluster.restart("nats-server")
        await real_cluster.running("waits")
        assert await real_cluster.containers("before") == containers
        await real_cluster.recounted()


@pytest.mark.long
async def test_dray_follows_kubernetes_back_to_an_older_state(real_cluster: RealCluster) -> None:
    """Pods that were made after the snapshot are gone, those deleted since are back.

    Kubelets and kube-proxies are restarted, as the documentation of etcd's restoring asks: their
    watches wait for revisions that the older state has not reached.
    """
    stack = real_cluster.stack
    await real_cluster.submit("kept", DEDICATED)
    await real_cluster.submit("returns", DEDICATED, gpu_count="2")
    await real_cluster.running("kept", "returns")
    containers = await real_cluster.containers("returns")
    etcd = stack.directory / "kubernetes" / "etcd"
    snapshot = etcd.with_name("snapshot")

    async def change_etcd(source: Path, target: Path) -> None:
        for name in reversed(CONTROL_PLANE):
            await stack.runner.stop(name)
        await asyncio.to_thread(shutil.rmtree, target, ignore_errors=True)
        await asyncio.to_thread(shutil.copytree, source, target)
        for name in CONTROL_PLANE:
            await stack.restart(name)

    await change_etcd(etcd, snapshot)
    await real_cluster.delete("returns")
    await real_cluster.submit("vanishes", DEDICATED, gpu_count=str(GPUS))
    await real_cluster.running("vanishes")
    await change_etcd(snapshot, etcd)
    for node in NODE_OF.values():
        await real_cluster.restart(f"kubelet-{node}")
        await real_cluster.restart(f"kube-proxy-{node}")

    assert set(await real_cluster.pods()) == {"kept", "returns"}

    async def runs_again() -> bool:
        pod = (await real_cluster.pods())["returns"]
        statuses = pod["status"]["containerStatuses"]
        return all(one.get("containerID") != containers[one["name"]][0] for one in statuses)

    await real_cluster.until(runs_again, "another container of returns")
    await real_cluster.ready("kept", "returns")
    claim = await real_cluster.claim_of("returns")
    assert claim is not None
    seen = (await real_cluster.environment("returns"))[GPU_VARIABLE].split(",")
    assert len(seen) == len(results_of(claim)) == 2
    # It has room while the two run, also on a card that both use, but not with "vanishes".
    await real_cluster.submit("next", DEDICATED, gpu_count=str(GPUS), vram_request="8Gi")
    await real_cluster.running("next")
    await real_cluster.recounted()

    async def counts() -> bool:
        subject = f"dray.state.claim.v1.{DEDICATED}.{claim['metadata']['uid']}"
        fact = await real_cluster.bus.last(FACTS_STREAM, subject)
        return fact is not None and not decode(fact, ClaimObserved).deleted

    await real_cluster.until(counts, "the claim of returns counts again")
    await real_cluster.delete("kept", "returns", "next")
    await real_cluster.submit("whole", DEDICATED, gpu_count=str(GPUS), tflops_request="312")
    await real_cluster.running("whole")
