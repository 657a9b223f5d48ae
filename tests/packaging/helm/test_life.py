"""An installation's life on a real cluster: first pod, upgrade, rollback, uninstallation, again.

The tests of this module are steps of one story, in their order.
"""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml
from tests.command_blocks import commands_of
from tests.packaging.helm.installation import (
    CHART,
    INSTALLED,
    KEEPS_SHARES,
    NAMESPACE,
    RELEASE,
    SIMULATED,
    Cluster,
    CommandError,
    cluster,
    gpu_pod,
)

pytestmark = INSTALLED


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def empty() -> AsyncIterator[Cluster]:
    """A cluster for this module."""
    async with cluster("helm") as made:
        yield made


async def test_one_command_installs_a_working_system(empty: Cluster) -> None:
    notes = await empty.install(*SIMULATED)

    await empty.ready()
    assert f"helm test {RELEASE} -n {NAMESPACE}" in notes
    chooser = "dray chooses" if KEEPS_SHARES else "kube-scheduler chooses"
    assert f"{chooser} the cards of its pods" in notes
    assert ("each pod gets a whole card" in notes) is not KEEPS_SHARES
    assert "no default StorageClass" in notes

    async def has_gpus() -> bool:
        (pool,) = await empty.objects("gpupool", "default")
        assert pool["spec"]["owner"] == ("dray" if KEEPS_SHARES else "kube-scheduler")
        return pool.get("status", {}).get("nodes") == 2

    await empty.until(has_gpus, "both nodes in the default pool")


async def test_the_first_pod_of_the_user_guide_runs_right_after_that(empty: Cluster) -> None:
    await empty.apply(gpu_pod("my-gpu-workload", image="nvidia/cuda:12.0-base"))
    await empty.running("my-gpu-workload")

    environment = await empty.kubectl("exec", "my-gpu-workload", "--", "env")
    assert "NVIDIA_VISIBLE_DEVICES=GPU-" in environment
    described = await empty.kubectl("describe", "pod", "my-gpu-workload")
    assert "Successfully assigned" in described


async def test_helm_test_runs_the_main_job(empty: Cluster) -> None:
    printed = await empty.helm("test", RELEASE, "-n", NAMESPACE, "--logs")

    assert "Phase:          Succeeded" in printed
    assert "this pod got GPU-" in printed


@pytest.mark.long
async def test_a_pod_that_asks_for_nothing_of_dray_never_waits_for_it(empty: Cluster) -> None:
    await empty.kubectl("scale", "deployment/dray-webhook", "--replicas=0", "-n", NAMESPACE)
    endpoints = ("endpointslices", "-n", NAMESPACE, "-l", "kubernetes.io/service-name=dray-webhook")

    async def away() -> bool:
        return not any(one.get("endpoints") for one in await empty.objects(*endpoints))

    await empty.until(away, "no webhook left")
    container = {"name": "a", "image": "a"}
    plain = {"metadata": {"name": "plain"}, "spec": {"containers": [container]}}
    await empty.apply(json.dumps({"apiVersion": "v1", "kind": "Pod", **plain}))
    await empty.running("plain")
    with pytest.raises(CommandError, match=r"failed calling webhook \"pods\.webhook\.dray"):
        await empty.apply(gpu_pod("refused"))
    system = ("-n", "kube-system")
    await empty.kubectl("apply", *system, "-f", "-", stdin=gpu_pod("of-the-cluster"))
    await empty.kubectl("wait", *system, "--for=condition=Ready", "pod/of-the-cluster")
    await empty.kubectl("delete", *system, "pod", "of-the-cluster")

    await empty.kubectl("scale", "deployment/dray-webhook", "--replicas=2", "-n", NAMESPACE)
    await empty.ready()


async def test_a_node_agent_writes_the_slices_of_its_own_node_alone(empty: Cluster) -> None:
    first, second = await empty.objects(
        "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=dray-node-agent"
    )
    (theirs,) = [
        one
        for one in await empty.objects("resourceslices")
        if one["spec"]["nodeName"] == second["spec"]["nodeName"]
    ]
    script = f"""
import asyncio
from dray.kube.api import connect
from dray.kube.ports import SLICES
async def main():
    kube = await connect(None, user_agent="intruder")
    theirs = {theirs!r}
    new = theirs | {{"metadata": {{"generateName": "intruder-"}}}}
    for attempt in (
        kube.delete(SLICES, theirs["metadata"]["name"]),
        kube.update(SLICES, theirs),
        kube.create(SLICES, new),
    ):
        try:
            await attempt
            print("let through")
        except Exception as error:
            print("refused:", error)
    await kube.close()
asyncio.run(main())
"""
    printed = await empty.kubectl(
        "exec", first["metadata"]["name"], "-n", NAMESPACE, "--", "python", "-c", script
    )
    assert "let through" not in printed
    assert printed.count("a node-agent writes ResourceSlices of its own node alone") == 3


@pytest.mark.long
async def test_the_daily_job_makes_again_what_was_lost(empty: Cluster) -> None:
    await empty.kubectl("delete", "secret", "dray-operator", "-n", NAMESPACE)
    lost = json.dumps({"data": {"reader-password": None}})
    await empty.kubectl("patch", "secret", "dray-nats", "-n", NAMESPACE, "-p", lost)
    broken = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        patch = ("--type=json", "-p", json.dumps(broken))
        await empty.kubectl("patch", f"{kind}/dray-webhook", *patch)

    await empty.kubectl(
        "create", "job", "--from=cronjob/dray-renewal", "renew-now", "-n", NAMESPACE
    )
    await empty.kubectl(
        "wait", "--for=condition=Complete", "job/renew-now", "-n", NAMESPACE, "--timeout=60s"
    )

    printed = await empty.kubectl("logs", "job/renew-now", "-n", NAMESPACE)
    assert "Secret dray-nats: updated (reader-password)" in printed
    assert "Secret dray-operator: created" in printed
    await empty.helm("test", RELEASE, "-n", NAMESPACE)
    # The servers of NATS read passwords when they start.
    await empty.kubectl("rollout", "restart", "statefulset/dray-nats", "-n", NAMESPACE)
    await empty.ready()


@pytest.mark.long
async def test_an_upgrade_brings_custom_resources_and_keeps_pods_and_passwords(
    empty: Cluster,
) -> None:
    (before,) = await empty.objects("secret", "dray-nats", "-n", NAMESPACE)
    removed = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/isolation"
    await empty.kubectl(
        "patch", "crd", "gpupools.tensor-fusion.ai", "--type=json",
        "-p", json.dumps([{"op": "remove", "path": removed}]),
    )  # fmt: skip
    await empty.kubectl("delete", "crd", "queues.scheduling.volcano.sh")
    lost = json.dumps({"data": {"recorder-password": None}})
    await empty.kubectl("patch", "secret", "dray-nats", "-n", NAMESPACE, "-p", lost)

    await empty.upgrade(*SIMULATED, "--set", "webhook.replicas=3", "--set", "logLevel=debug")
    await empty.ready()

    (crd,) = await empty.objects("crd", "gpupools.tensor-fusion.ai")
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert "isolation" in spec["properties"]
    assert await empty.objects("crd", "queues.scheduling.volcano.sh")
    (after,) = await empty.objects("secret", "dray-nats", "-n", NAMESPACE)
    made = {"recorder-password": after["data"]["recorder-password"]}
    assert after["data"] == before["data"] | made
    (webhook,) = await empty.objects("deployment", "dray-webhook", "-n", NAMESPACE)
    assert webhook["status"]["readyReplicas"] == 3
    await empty.running("my-gpu-workload")
    await empty.helm("test", RELEASE, "-n", NAMESPACE)


@pytest.mark.long
async def test_a_rollback_is_an_upgrade_back(empty: Cluster) -> None:
    await empty.helm("rollback", RELEASE, "1", "-n", NAMESPACE)
    await empty.ready()

    (webhook,) = await empty.objects("deployment", "dray-webhook", "-n", NAMESPACE)
    assert webhook["spec"]["replicas"] == 2
    await empty.helm("test", RELEASE, "-n", NAMESPACE)


async def test_an_uninstallation_is_refused_while_pods_use_gpus(empty: Cluster) -> None:
    with pytest.raises(CommandError):
        await empty.uninstall()

    printed = await empty.kubectl("logs", "job/dray-uninstall", "-n", NAMESPACE)
    assert "default/my-gpu-workload" in printed
    await empty.running("my-gpu-workload")
    await empty.ready()


async def test_an_uninstallation_leaves_what_people_made_and_nothing_else(empty: Cluster) -> None:
    pool = "apiVersion: tensor-fusion.ai/v1\nkind: GPUPool\nmetadata: {name: theirs}\nspec: {}"
    await empty.apply(pool, gpu_pod("waits", tflops="100000"))

    async def is_recorded() -> bool:
        return bool(await empty.objects("bindrequests"))

    if KEEPS_SHARES:  # else it waits for kube-scheduler, which has no such record
        await empty.until(is_recorded, "the reason of the pod that waits")
    await empty.kubectl("delete", "pod", "my-gpu-workload")
    # As a node-agent made them: it belongs to no controller. On no node, whose agent would end it.
    labels = "app.kubernetes.io/name=dray-mps-daemon"
    nowhere = json.dumps({"spec": {"nodeSelector": {"no": "node"}}})
    daemon = ("run", "dray-mps-daemon-gpu-0", "--image=app", "--labels", labels)
    await empty.kubectl(*daemon, "--overrides", nowhere, "-n", NAMESPACE)

    await empty.uninstall()

    await empty.kubectl("get", "pod", "waits")
    await empty.kubectl("delete", "pod", "waits")
    assert [one["metadata"]["name"] for one in await empty.objects("gpupools")] == ["theirs"]
    await empty.kubectl("delete", "gpupool", "theirs")
    await _nothing_left(empty)
    *_, kubectl = commands_of("docs/uninstall.md")
    assert kubectl.startswith("kubectl delete crd ")
    await empty.kubectl(*kubectl.split()[1:])


@pytest.mark.long
async def test_a_second_installation_works_with_three_servers_of_nats(empty: Cluster) -> None:
    await empty.install(*SIMULATED, "--set", "nats.replicas=3")
    await empty.ready()
    await empty.helm("test", RELEASE, "-n", NAMESPACE)
    await empty.apply(gpu_pod("again"))
    await empty.running("again")

    # A server goes, and nothing that people would notice.
    await empty.kubectl("delete", "pod", "dray-nats-1", "-n", NAMESPACE)
    await empty.apply(gpu_pod("meanwhile"))
    await empty.running("meanwhile")
    await empty.ready()

    await empty.kubectl("delete", "pod", "again", "meanwhile")
    await empty.uninstall()
    await _nothing_left(empty)


@pytest.mark.long
async def test_every_right_of_the_jobs_was_used_and_nothing_was_refused(empty: Cluster) -> None:
    requests = empty.audited()
    rendered = await empty.helm(
        "template", RELEASE, str(CHART), "-n", NAMESPACE, "--dry-run=server", *SIMULATED
    )
    jobs = {f"dray-{name}" for name in ("setup", "renewal", "removal")}
    roles = [
        one
        for one in yaml.safe_load_all(rendered)
        if one and one["kind"] in ("Role", "ClusterRole") and one["metadata"]["name"] in jobs
    ]

    granted = {
        (role["metadata"]["name"], verb, group, resource)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    used = {
        (
            one.user.rpartition(":")[2],
            one.verb,
            one.group,
            f"{one.resource}/{one.subresource}" if one.subresource else one.resource,
        )
        for one in requests
    }
    assert len(roles) == 2 * len(jobs)
    assert sorted(granted - used) == []
    assert [(one.user, one.verb, one.path) for one in requests if one.forbidden] == []
    services = {one.user.rpartition(":")[2] for one in requests}
    assert {"dray-claim-controller", "dray-node-agent"} < services
    assert "dray-webhook" not in services


async def _nothing_left(cluster: Cluster) -> None:
    """Wait until the last pods have ended."""

    async def nothing() -> bool:
        return not await _left(cluster)

    await cluster.until(nothing, f"nothing of dray left, but {await _left(cluster)}")


async def _left(cluster: Cluster) -> list[str]:
    """Objects of dray that are there, but for its custom resources' definitions."""
    kinds = (
        "clusterroles,clusterrolebindings,mutatingwebhookconfigurations,deviceclasses,"
        "validatingwebhookconfigurations,validatingadmissionpolicies,resourceslices,"
        "validatingadmissionpolicybindings,schedulingconfigtemplates,gpupools,priorityclasses"
    )
    own = "all,secrets,configmaps,serviceaccounts,roles,rolebindings,leases,poddisruptionbudgets,"
    own += "persistentvolumeclaims,networkpolicies"
    named = (await cluster.kubectl("get", kinds, "-o", "name")).split()
    named += (await cluster.kubectl("get", own, "-n", NAMESPACE, "-o", "name")).split()
    everywhere = "resourceclaimtemplates,bindrequests"
    named += (await cluster.kubectl("get", everywhere, "-A", "-o", "name")).split()
    nodes = await cluster.kubectl("get", "nodes", "-o", "yaml")
    marked = ["a node's label or taint"] if "tensor-fusion.ai" in nodes else []
    ours = [name for name in named if "dray" in name or "tensor-fusion" in name]
    return [name for name in ours if "dray-dns" not in name] + marked  # of the cluster itself
