"""Pods that get their GPUs without claims, and pods that ask for ``nvidia.com/gpu``."""

import asyncio
import json
from typing import Any

from tests.conformance.labels import holders_of, listed_by
from tests.conformance.stand import NAMESPACE, phase_of, results_of
from tests.real_node.cluster import (
    DEDICATED,
    GPU_VARIABLE,
    GPUS,
    NODE_OF,
    REAL_NODE,
    RealCluster,
    pod_of,
)
from tests.written_pod import written_pod

from dray.api.names import GPU_IDS, GPU_RESOURCE, VIRTUAL_TFLOPS, VIRTUAL_VRAM
from dray.api.pods import accounting_claim
from dray.api.quantities import Quantity
from dray.kube.ports import CLAIMS, NODES, Object

pytestmark = REAL_NODE
NODE = NODE_OF[DEDICATED]
WITHOUT_DRA = {"dra-enabled": "false"}
COUNT_DEVICES = "ls /dev/nvidia* 2>/dev/null | wc -l"


async def test_the_pod_of_the_chapter_on_device_plugins_gets_one_whole_gpu(
    real_cluster: RealCluster,
) -> None:
    await real_cluster.kubectl("apply", "-f", "-", stdin=written_pod())
    await real_cluster.running("cuda-vector-add")
    claim = await real_cluster.claim_of("cuda-vector-add")

    assert claim is not None
    (held,) = results_of(claim)
    free = (await real_cluster.recounted()).free[held["driver"], held["pool"], held["device"]]
    assert free[VIRTUAL_TFLOPS] == free[VIRTUAL_VRAM] == Quantity(0)
    seen = await real_cluster.environment("cuda-vector-add", "cuda-vector-add")
    assert seen[GPU_VARIABLE].startswith("GPU-")
    assert "," not in seen[GPU_VARIABLE]
    assert await real_cluster.shell("cuda-vector-add", COUNT_DEVICES, "cuda-vector-add") == "1"


async def test_a_pod_without_dra_gets_its_share_and_gives_it_back(
    real_cluster: RealCluster,
) -> None:
    await real_cluster.create(pod_of("no-claim", DEDICATED, WITHOUT_DRA | {"gpu-count": "2"}))
    await real_cluster.running("no-claim")
    pod = await real_cluster.pod("no-claim")
    seen = await real_cluster.environment("no-claim")
    claim = await accounting_claim_of(real_cluster, pod)

    assert not pod["spec"].get("resourceClaims")
    gpus = pod["metadata"]["annotations"][GPU_IDS]
    assert len(gpus.split(",")) == len(results_of(claim)) == 2
    assert seen[GPU_VARIABLE] == seen["TENSOR_FUSION_GPU_IDS"] == gpus
    assert seen["TENSOR_FUSION_TFLOPS_REQUEST"] == "100"
    assert await real_cluster.shell("no-claim", COUNT_DEVICES) == "2"
    await real_cluster.recounted()

    await real_cluster.kubectl("delete", "pod", "no-claim")

    async def is_released() -> bool:
        claims = (await real_cluster.kube.list(CLAIMS, NAMESPACE)).objects
        names = [one["metadata"]["name"] for one in claims]
        return claim["metadata"]["name"] not in names and not real_cluster.cdi_files(NODE)

    await real_cluster.until(is_released, "claim and CDI files gone")


async def test_the_node_shows_its_gpus_and_one_less_if_one_is_unhealthy(
    real_cluster: RealCluster,
) -> None:
    file = real_cluster.node_files(NODE) / "dray" / "node-agent" / "unhealthy"

    async def offers(capacity: int, allocatable: int) -> None:
        async def is_so() -> bool:
            status = (await real_cluster.kube.get(NODES, NODE))["status"]
            seen = (status["capacity"][GPU_RESOURCE], status["allocatable"][GPU_RESOURCE])
            return seen == (str(capacity), str(allocatable))

        await real_cluster.until(is_so, f"{NODE} offers {allocatable} of {capacity}")

    await offers(GPUS, GPUS)
    described = await real_cluster.kubectl("describe", "node", NODE)
    assert described.count(f"{GPU_RESOURCE}: ") == 2  # Capacity and Allocatable
    file.write_text("0 xid-79\n")
    try:
        await offers(GPUS, GPUS - 1)
    finally:
        file.unlink()
    await offers(GPUS, GPUS)


async def test_equal_pods_of_the_same_second_get_gpus_of_their_own_as_do_those_with_claims(
    real_cluster: RealCluster,
) -> None:
    whole = {"tflops-request": "312"}
    pods = [pod_of(f"twin-{n}", DEDICATED, WITHOUT_DRA | whole) for n in range(2)]
    pods += [pod_of(f"claims-{n}", DEDICATED, whole) for n in range(2)]
    await asyncio.gather(*map(real_cluster.create, pods))
    names = [one["metadata"]["name"] for one in pods]
    await real_cluster.running(*names)

    seen = [(await real_cluster.environment(name))[GPU_VARIABLE] for name in names]
    assert len({*seen}) == GPUS
    await real_cluster.recounted()


async def test_init_containers_and_containers_take_turns_with_cards_of_a_limit(
    real_cluster: RealCluster,
) -> None:
    asks: dict[str, Any] = {"resources": {"limits": {GPU_RESOURCE: "2"}}}
    say = {"command": ["sh", "-c", "echo $" + GPU_VARIABLE]}
    pod = {
        "metadata": {
            "name": "by-limit",
            "annotations": {"tensor-fusion.ai/dra-enabled": "false"},
        },
        "spec": {
            "initContainers": [{"name": "first", "image": "app", **asks, **say}],
            "containers": [
                {"name": "app", "image": "app", **asks},
                {"name": "none", "image": "app"},
            ],
        },
    }
    await real_cluster.create(pod)
    await real_cluster.running("by-limit")

    gpus = (await real_cluster.environment("by-limit"))[GPU_VARIABLE]
    assert len(gpus.split(",")) == 2
    assert (await real_cluster.kubectl("logs", "by-limit", "-c", "first")).strip() == gpus
    assert GPU_VARIABLE not in await real_cluster.environment("by-limit", "none")


async def test_metrics_name_the_containers_that_the_kubelet_gave_gpus(
    real_cluster: RealCluster,
) -> None:
    """The kubelet lists its own ids, which stand for no certain GPU."""
    asks: dict[str, Any] = {"resources": {"limits": {GPU_RESOURCE: "2"}}}
    first = {"name": "first", "image": "app", "command": ["true"], **asks}
    containers = [{"name": "app", "image": "app", **asks}, {"name": "none", "image": "app"}]
    annotations = {"tensor-fusion.ai/dra-enabled": "false"}
    await real_cluster.create(
        {
            "metadata": {"name": "by-plugin", "annotations": annotations},
            "spec": {"initContainers": [first], "containers": containers},
        }
    )
    await real_cluster.submit("by-claim", DEDICATED)
    await real_cluster.running("by-plugin", "by-claim")
    gpus = (await real_cluster.environment("by-plugin"))[GPU_VARIABLE].lower().split(",")
    (shared,) = (await real_cluster.environment("by-claim"))[GPU_VARIABLE].lower().split(",")
    listed = await listed_by(
        real_cluster.node_files(NODE) / "kubelet" / "pod-resources" / "kubelet.sock"
    )
    ids = [name for name, of in listed.items() if of == {("by-plugin", "app")}]
    url = real_cluster.stack.runner.program(f"node-agent-{NODE}").health_url

    async def is_shown() -> bool:
        by_plugin = {gpu: {("by-plugin", "app")} for gpu in gpus}
        return await holders_of(url) == by_plugin | {shared: {("by-claim", "app")}}

    assert len(ids) == len(gpus) == 2
    assert listed[shared] == {("by-claim", "app")}
    await real_cluster.until(is_shown, "the metrics name both")


async def test_the_plugin_serves_again_after_restarts_of_kubelet_and_agent(
    real_cluster: RealCluster,
) -> None:
    await real_cluster.create(pod_of("stays", DEDICATED, WITHOUT_DRA))
    await real_cluster.running("stays")
    containers = await real_cluster.containers("stays")
    for number, program in enumerate(("kubelet", "node-agent")):
        await real_cluster.restart(f"{program}-{NODE}")
        await real_cluster.node_is_ready(NODE)
        name = f"after-{number}"
        await deploy(real_cluster, name)

    assert await real_cluster.containers("stays") == containers
    await real_cluster.recounted()


async def test_pods_that_are_bound_while_the_agent_is_killed_run_in_the_end(
    real_cluster: RealCluster,
) -> None:
    """The kubelet fails a pod that it admits meanwhile; its Deployment makes another."""
    agent = f"node-agent-{NODE}"
    deployed = asyncio.create_task(deploy(real_cluster, "meanwhile", replicas=GPUS))
    await asyncio.sleep(0.5)
    await real_cluster.restart(agent)
    await deployed
    await real_cluster.recounted()


async def test_a_pod_that_passed_the_webhook_by_gets_no_gpu(real_cluster: RealCluster) -> None:
    limits = {"resources": {"limits": {GPU_RESOURCE: "1"}}}
    pod = {
        "metadata": {"name": "passed-by"},
        "spec": {
            "nodeName": NODE,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "app", "image": "app", **limits}],
        },
    }
    await real_cluster.stack.runner.stop("webhook")
    try:
        await real_cluster.create(pod)
    finally:
        await real_cluster.stack.restart("webhook")

    async def is_explained() -> bool:
        statuses = (await real_cluster.pod("passed-by"))["status"].get("containerStatuses") or ()
        waits = [one["state"].get("waiting", {}).get("message", "") for one in statuses]
        return any("dray gave it no GPUs" in message for message in waits)

    await real_cluster.until(is_explained, "the container waits, with the reason")
    assert phase_of(await real_cluster.pod("passed-by")) == "Pending"


async def deploy(cluster: RealCluster, name: str, *, replicas: int = 1) -> None:
    """A Deployment of pods without DRA; waits until all run."""
    template = pod_of("", DEDICATED, WITHOUT_DRA)
    template["metadata"] |= {"labels": {"app": name}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }
    await cluster.kubectl("apply", "-f", "-", stdin=json.dumps(deployment))
    await cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=110s")


async def accounting_claim_of(cluster: RealCluster, pod: Object) -> Object:
    """The claim of a pod without claims."""
    name = accounting_claim(pod["metadata"]["uid"])
    return await cluster.kube.get(CLAIMS, name, NAMESPACE)
