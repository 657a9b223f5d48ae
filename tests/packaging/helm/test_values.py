"""The chart's values: every combination renders to objects that the API server takes, and wrong
ones are refused with their names."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from tests.command_blocks import commands_of
from tests.packaging.helm.installation import (
    CHART,
    INSTALLED,
    NAMESPACE,
    RELEASE,
    ROOT,
    SIMULATED,
    Cluster,
    CommandError,
)
from tests.packaging.helm.releases import Release

from dray_cli.chart import secrets
from dray_cli.chart.secrets import PART
from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.decisions.mps_daemons import daemon_pod
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_sandbox.layout import StackOptions, simulated_nodes
from dray_sandbox.stack import Stack
from tools.helm import build_helm
from tools.retry import connect_with_retries
from tools.version import version

pytestmark = [*INSTALLED, pytest.mark.long]

PLACED: dict[str, Any] = {
    "nodeSelector": {"disk": "ssd"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }
        }
    },
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"team": "gpu"},
    "extraEnv": [
        {"name": "A", "value": "b"},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
    ],
    "additionalArgs": ["--log.format=console"],
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
}
OVERRIDDEN = {
    "webhook": "DRAY_LOG__LEVEL",
    "claimController": "DRAY_STREAMS__STORE",
    "allocator": "OTEL_TRACES_EXPORTER",
    "nodeAgent": "DRAY_NODE__CDI_DIR",
    "nats": "POD_NAME",
    "jobs": "DRAY_NAMESPACE",
}
"""By component, a variable that the chart sets."""
COMPONENTS = ("webhook", "claimController", "allocator", "nodeAgent", "nats", "jobs")
EXTERNAL = {
    "enabled": False,
    "external": {
        "url": "tls://nats.example:4222,tls://other.example:4222",
        "credentialsSecret": "our-nats",
        "caSecret": "our-ca",
    },
}
SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "simulated-gpus": {"nodeAgent": {"gpus": "simulated", "model": "A100", "count": 4}},
    "three-servers-of-nats": {"nats": {"replicas": 3}},
    "nats-without-tls": {"nats": {"tls": False}},
    "nats-with-a-volume": {"nats": {"persistence": {"enabled": True, "storageClassName": "fast"}}},
    "nats-without-a-volume": {"nats": {"persistence": {"enabled": False}}},
    "existing-nats": {"nats": EXTERNAL},
    "existing-nats-of-known-authorities": {
        "nats": EXTERNAL | {"external": EXTERNAL["external"] | {"caSecret": ""}}
    },
    "everything-placed": dict.fromkeys(COMPONENTS, PLACED),
    "labels-of-the-chart": {
        component: {
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "podLabels": {"app.kubernetes.io/part-of": "platform"},
        }
        for component in COMPONENTS
    },
    "variables-of-the-chart": {
        component: {"extraEnv": [{"name": name, "value": "ours"}]}
        for component, name in OVERRIDDEN.items()
    },
    "autoscaling": {"allocator": {"autoscaling": {"enabled": True, "maxReplicas": 9}}},
    "network-policies": {"networkPolicies": {"enabled": True}},
    "one-of-each": {
        "webhook": {"replicas": 1, "failurePolicy": "Ignore", "excludedNamespaces": []},
        "claimController": {"replicas": 1},
        "allocator": {"replicas": 1},
        "podDisruptionBudgets": {"enabled": False},
    },
    "runtime-class": {"nodeAgent": {"nvidia": {"runtimeClassName": "nvidia"}}},
    "mps": {"nodeAgent": {"mps": {"enabled": True}}, "imagePullSecrets": ["pull"]},
    "mps-in-a-runtime-class": {
        "nodeAgent": {"mps": {"enabled": True}, "nvidia": {"runtimeClassName": "nvidia"}}
    },
    "device-plugin": {"devicePlugin": {"enabled": True}, "gpuResources": ["nvidia.com/gpu"]},
    "gpu-operators-driver": {"nodeAgent": {"nvidia": {"driverRoot": "/run/nvidia/driver"}}},
    "own-registry": {
        "image": {"registry": "registry.example/gpu", "tag": "0.3.0", "pullPolicy": "Always"},
        "imagePullSecrets": ["pull"],
    },
    "traces-and-recordings": {
        "tracing": {"endpoint": "http://collector:4318", "samplingRatio": 0.01},
        "record": True,
        "logLevel": "debug",
    },
    "pool-of-kube-scheduler": {"defaultPool": {"owner": "kube-scheduler"}},
    "dedicated-pool": {
        "defaultPool": {"dedicated": True, "spec": {"qosConfig": {"defaultQoS": "high"}}}
    },
    "no-pool": {"defaultPool": {"create": False}},
    "monitored": {
        "monitoring": {
            "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboards": {"enabled": True},
        }
    },
    "service-monitor": {
        "monitoring": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}
    },
    "cert-manager": {"certificates": {"source": "cert-manager"}},
}
"""Values by name."""
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "two-servers": ({"nats": {"replicas": 2}}, "nats/replicas"),
    "unknown": ({"webhok": {}}, "webhok"),
    "unknown-deep": ({"nats": {"persistence": {"siz": "1Gi"}}}, "siz"),
    "no-url": ({"nats": {"enabled": False}}, "nats.external.url"),
    "no-credentials": (
        {"nats": {"enabled": False, "external": {"url": "nats://n:4222"}}},
        "nats.external.credentialsSecret",
    ),
    "quantity": ({"nats": {"maxFileStore": "8GB"}}, "maxFileStore"),
    "store-of-the-whole-volume": ({"nats": {"maxFileStore": "10240Mi"}}, "nats.maxFileStore"),
    "owner": ({"defaultPool": {"owner": "volcano"}}, "owner"),
    "url": ({"nats": {"external": {"url": "nats.example"}}}, "url"),
    "both-monitors": (
        {"monitoring": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}},
        "monitoring.serviceMonitor",
    ),
    "plugin-without-its-resource": ({"devicePlugin": {"enabled": True}}, "gpuResources"),
    "fewer-than-the-least": (
        {"allocator": {"autoscaling": {"enabled": True, "maxReplicas": 1}}},
        "allocator.autoscaling.maxReplicas",
    ),
    "shared-memory": ({"nodeAgent": {"mps": {"sharedMemoryMiB": 2**63}}}, "sharedMemoryMiB"),
    "ratio": ({"tracing": {"samplingRatio": 2}}, "samplingRatio"),
    "no-node-at-a-time": ({"nodeAgent": {"maxUnavailable": 0}}, "maxUnavailable"),
    "no-share-of-nodes": ({"nodeAgent": {"maxUnavailable": "0%"}}, "maxUnavailable"),
}
"""Values, and what the refusal names."""
OTHERS = {
    "monitoring.coreos.com": ("PodMonitor", "ServiceMonitor", "PrometheusRule"),
    "cert-manager.io": ("Issuer", "Certificate"),
}
"""Kinds of operators that this cluster lacks: definitions without a schema stand in for them."""
RIGHTS_OF_MPS = (
    "Role/dray-node-agent",
    "RoleBinding/dray-node-agent",
    "ValidatingAdmissionPolicy/dray-mps-daemons",
    "ValidatingAdmissionPolicyBinding/dray-mps-daemons",
)
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server() -> AsyncIterator[Cluster]:
    """A real API server without nodes."""
    options = StackOptions(
        "chart", control_plane="real", nodes=simulated_nodes(1), services=False, workloads=False
    )
    async with Stack(options, print) as stack:
        kube = await connect_with_retries(stack.record.kubeconfig, user_agent="dray-test-helm")
        made = Cluster(stack, kube, str(await build_helm(print)))
        namespace = {"name": NAMESPACE, "labels": RESTRICTED}
        ours = {"apiVersion": "v1", "kind": "Namespace", "metadata": namespace}
        await made.apply(json.dumps(ours))
        await made.kubectl("apply", "--server-side", "-f", str(CHART / "crds"))
        for group, kinds in OTHERS.items():
            await made.apply(*(yaml.safe_dump(definition(group, kind)) for kind in kinds))
        await made.kubectl("wait", "--for=condition=Established", "crd", "--all")
        yield made
        await kube.close()


def definition(group: str, kind: str) -> dict[str, Any]:
    """A custom resource that takes everything."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


async def render(server: Cluster, values: dict[str, Any], folder: Any) -> str:
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    return await server.helm(
        "template", RELEASE, str(CHART), "-n", NAMESPACE, "-f", str(path), "--dry-run=server"
    )


async def test_the_chart_has_no_fault_that_helm_knows(server: Cluster) -> None:
    assert "0 chart(s) failed" in await server.helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("name", SETS)
async def test_the_api_server_takes_what_is_rendered(server: Cluster, tmp_path, name: str) -> None:
    rendered = await render(server, SETS[name], tmp_path)

    printed = await server.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=rendered
    )
    assert "deployment.apps/dray-webhook serverside-applied" in printed


@pytest.mark.parametrize("name", WRONG)
async def test_wrong_values_are_refused_by_name(server: Cluster, tmp_path, name: str) -> None:
    values, named = WRONG[name]
    with pytest.raises(CommandError) as refused:
        await render(server, values, tmp_path)

    assert named in str(refused.value)


async def test_every_value_of_the_file_is_in_the_schema_and_the_other_way_round() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def paths(node: Any, known: Any, at: str = "") -> set[str]:
        found = set()
        for key in known.get("properties", {}):
            below = known["properties"][key]
            held = node.get(key) if isinstance(node, dict) else None
            missing = not isinstance(node, dict) or key not in node
            found |= {f"{at}{key} is not in values.yaml"} if missing else set()
            found |= paths(held, below, f"{at}{key}.")
        if "properties" in known and isinstance(node, dict):
            unknown = node.keys() - known["properties"]
            found |= {f"{at}{key} is not in the schema" for key in unknown}
        return found

    assert paths(values, schema) - {"global is not in values.yaml"} == set()


async def test_cert_managers_certificates_are_trusted_mounted_and_deleted_in_the_end(
    server: Cluster, tmp_path
) -> None:
    rendered = await render(server, SETS["cert-manager"], tmp_path)
    objects = [one for one in yaml.safe_load_all(rendered) if one]

    def of(kind: str) -> dict[str, Any]:
        return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}

    certificates = of("Certificate")
    assert certificates.keys() == {"dray-ca", "dray-webhook", "dray-nats"}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        annotations = of(kind)["dray-webhook"]["metadata"]["annotations"]
        namespace, _, named = annotations["cert-manager.io/inject-ca-from"].partition("/")
        assert (namespace, named in certificates) == (NAMESPACE, True)
    made = {one["spec"]["secretName"]: one["spec"] for one in certificates.values()}
    for workload in (of("Deployment")["dray-webhook"], of("StatefulSet")["dray-nats"]):
        volumes = workload["spec"]["template"]["spec"]["volumes"]
        assert {one["secret"]["secretName"] for one in volumes if "secret" in one} <= made.keys()
    (deletable,) = (
        set(rule["resourceNames"])
        for rule in of("Role")["dray-removal"]["rules"]
        if rule["resources"] == ["secrets"]
    )
    assert made.keys() < deletable == {*secrets.MADE}
    assert all(PART.items() <= one["secretTemplate"]["labels"].items() for one in made.values())


def pods_of(rendered: str) -> dict[str, Any]:
    """The pods that the chart's workloads, jobs and test make, by name."""
    pods = {}
    for one in yaml.safe_load_all(rendered):
        spec = (one or {}).get("spec") or {}
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            metadata = template["metadata"] | {"name": one["metadata"]["name"]}
            pods[one["metadata"]["name"]] = {**template, "metadata": metadata}
        elif one and one["kind"] == "Pod":
            pods[one["metadata"]["name"]] = one
    assert len(pods) == 12
    return pods


async def test_every_pod_is_as_the_values_say(server: Cluster, tmp_path) -> None:
    for name, pod in pods_of(await render(server, SETS["everything-placed"], tmp_path)).items():
        spec, (container,) = pod["spec"], pod["spec"]["containers"]
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"} | PLACED["nodeSelector"], name
        assert spec["affinity"] == PLACED["affinity"], name
        assert spec["tolerations"] == PLACED["tolerations"], name
        assert container["resources"] == PLACED["resources"], name
        assert PLACED["podLabels"].items() <= pod["metadata"]["labels"].items(), name
        assert PLACED["podAnnotations"].items() <= pod["metadata"]["annotations"].items(), name
        assert container["args"][-1] == PLACED["additionalArgs"][0] or name == "dray-test"
        assert all(one in container.get("env", ()) for one in PLACED["extraEnv"]), name


async def test_a_variable_of_the_values_comes_before_the_charts(server: Cluster, tmp_path) -> None:
    seen = set()
    rendered = await render(server, SETS["variables-of-the-chart"], tmp_path)
    for pod in pods_of(rendered).values():
        variables = pod["spec"]["containers"][0].get("env", ())
        assert len({one["name"] for one in variables}) == len(variables)
        seen |= {one["name"] for one in variables if one.get("value") == "ours"}

    assert seen == {*OVERRIDDEN.values()}


async def test_node_agents_only_read_what_the_kubelet_lists(server: Cluster, tmp_path) -> None:
    values = {"nodeAgent": {"kubeletDir": "/data/kubelet"}}
    pod = pods_of(await render(server, values, tmp_path))["dray-node-agent"]
    (mount,) = [
        one
        for one in pod["spec"]["containers"][0]["volumeMounts"]
        if one["name"] == "pod-resources"
    ]
    (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == "pod-resources"]
    assert mount["readOnly"]
    assert mount["mountPath"] == volume["hostPath"]["path"] == "/data/kubelet/pod-resources"


async def test_all_pods_but_node_agents_are_restricted(server: Cluster, tmp_path) -> None:
    pods = pods_of(await render(server, {}, tmp_path))
    del pods["dray-node-agent"]
    for pod in pods.values():
        pod |= {"apiVersion": "v1", "kind": "Pod"}
        pod["metadata"] = {"name": pod["metadata"]["name"], "namespace": NAMESPACE}
        assert all(
            one["securityContext"]["readOnlyRootFilesystem"] for one in pod["spec"]["containers"]
        )
        await server.kubectl(
            "create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(pod)
        )


async def test_the_upgrade_page_keeps_the_values_of_the_earlier_release(
    server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the letter, but that no job can run here."""
    monkeypatch.chdir(ROOT)
    program, *upgrade = commands_of("docs/upgrade.md")[0].split()
    assert (program, upgrade[0]) == ("helm", "upgrade")
    chart = str(Release("0.2.0-rc.1").chart)
    flags = ("-n", NAMESPACE, "--no-hooks", "--skip-crds")  # Those of this release are there.
    await server.helm("install", RELEASE, chart, *flags, *SIMULATED)

    await server.helm(*upgrade, "--no-hooks")

    (agent,) = await server.objects("daemonset", "dray-node-agent", "-n", NAMESPACE)
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(version())
    assert {"name": "DRAY_NODE__MODEL", "value": "A100"} in container["env"]
    await server.helm("uninstall", RELEASE, "-n", NAMESPACE, "--no-hooks")


@pytest.mark.parametrize("major", [4, 3], ids=lambda major: f"helm-{major}")
async def test_autoscaling_begins_with_the_replicas_that_there_are_and_never_changes_them(
    server: Cluster, major: int
) -> None:
    """Nobody scales here but this test, as an autoscaler would: by the subresource."""
    server = dataclasses.replace(server, helm_program=str(await build_helm(print, major)))
    flags = (str(CHART), "-n", NAMESPACE, "--no-hooks")
    autoscaling = ("--set", "allocator.autoscaling.enabled=true")
    allocator = ("deployment", "dray-allocator", "-n", NAMESPACE)

    async def replicas() -> int:
        (found,) = await server.objects(*allocator)
        return int(found["spec"]["replicas"])

    await server.helm("install", RELEASE, *flags, "--skip-crds", "--set", "allocator.replicas=3")
    await server.helm("upgrade", RELEASE, *flags, *autoscaling)
    assert await replicas() == 3
    await server.kubectl("scale", *allocator, "--replicas=5")
    await server.helm("upgrade", RELEASE, *flags, *autoscaling, "--set", "logLevel=debug")
    assert await replicas() == 5
    # As docs/upgrade.md says: the field manager that scaled it last has to be overruled.
    if major > 3:
        with pytest.raises(CommandError, match="conflict"):
            await server.helm("rollback", RELEASE, "2", "-n", NAMESPACE, "--no-hooks")
    force = ("--force-conflicts",) if major > 3 else ()
    await server.helm("rollback", RELEASE, "2", "-n", NAMESPACE, "--no-hooks", *force)
    assert await replicas() == 3
    await server.helm("uninstall", RELEASE, "-n", NAMESPACE, "--no-hooks")
    rendered = await server.helm(
        "template", RELEASE, *flags, *autoscaling, "--kube-version", "1.36.3"
    )
    assert "replicas" not in next(
        one["spec"]
        for one in yaml.safe_load_all(rendered)
        if one and (one["kind"], one["metadata"]["name"]) == ("Deployment", "dray-allocator")
    )


@pytest.mark.parametrize("is_default", [False, True], ids=["another-class", "default-class"])
async def test_the_notes_warn_if_the_store_of_nats_is_not_a_volume(
    server: Cluster, is_default: bool
) -> None:
    annotations = {"storageclass.kubernetes.io/is-default-class": str(is_default).lower()}
    metadata = {"name": "disk", "annotations": annotations}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    await server.apply(json.dumps({**kind, "metadata": metadata, "provisioner": "example.com/a"}))
    try:
        install = ("install", RELEASE, str(CHART), "-n", NAMESPACE, "--dry-run=server")
        printed = await server.helm(*install, "--no-hooks", "--skip-crds")
    finally:
        await server.kubectl("delete", "storageclass", "disk")

    assert ("volumeClaimTemplates" in printed) is is_default
    assert ("WARNING: NATS keeps its store in its pod" in printed) is not is_default


async def test_a_second_installation_in_another_namespace_is_refused(server: Cluster) -> None:
    """A cluster has one dray: its class, pools and registrations are the cluster's."""
    await server.helm("install", RELEASE, str(CHART), "-n", NAMESPACE, "--no-hooks", "--skip-crds")
    with pytest.raises(CommandError, match=f'must equal "other".*current value is "{NAMESPACE}"'):
        await server.helm("install", "dray", str(CHART), "-n", "other", "--create-namespace")

    (binding,) = await server.objects("clusterrolebinding", "dray-claim-controller")
    assert [one["namespace"] for one in binding["subjects"]] == [NAMESPACE]
    await server.helm("uninstall", RELEASE, "-n", NAMESPACE, "--no-hooks")


async def test_a_node_agent_runs_mps_daemons_of_its_own_node_that_read_no_secret(
    server: Cluster, tmp_path
) -> None:
    rendered = [
        one for one in yaml.safe_load_all(await render(server, SETS["mps"], tmp_path)) if one
    ]
    rights = [
        one for one in rendered if f"{one['kind']}/{one['metadata']['name']}" in RIGHTS_OF_MPS
    ]
    assert len(rights) == len(RIGHTS_OF_MPS)
    (found,) = (one for one in rendered if "pod.yaml" in one.get("data", {}))
    template = yaml.safe_load(found["data"]["pod.yaml"])
    level = "pod-security.kubernetes.io/enforce={}".format
    label = ("label", "--overwrite", "namespace", NAMESPACE)
    await server.kubectl(*label, level("privileged"))
    await server.apply(*map(yaml.safe_dump, rights))
    try:
        await refuse_all_but_daemons(server, template, tmp_path / "agent.kubeconfig")
    finally:
        await server.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(rights))
        await server.kubectl(*label, level("restricted"))


async def refuse_all_but_daemons(
    server: Cluster, template: dict[str, Any], kubeconfig: Path
) -> None:
    """With the rights of a node-agent on the node ``n1``, and the template of its daemons."""
    gpu = SimulatedGpus("n1", "A100", 1).read().gpus[0]
    config = yaml.safe_load(await asyncio.to_thread(Path(server.kubeconfig).read_text))
    for user in config["users"]:
        user["user"] |= {
            "as": f"system:serviceaccount:{NAMESPACE}:dray-node-agent",
            "as-user-extra": {"authentication.kubernetes.io/node-name": ["n1"]},
        }
    await asyncio.to_thread(kubeconfig.write_text, yaml.safe_dump(config))
    as_agent = ("--kubeconfig", str(kubeconfig))

    async def refusal(of: str = "n1", namespace: str = NAMESPACE, **spec: Any) -> str:
        """Why the API server refuses a daemon with these fields; empty: it takes it."""
        pod = daemon_pod(template, gpu, NodeState(of, "uid"), namespace)
        pod["spec"] |= spec
        try:
            create = ("create", "--dry-run=server", "--validate=strict", *as_agent, "-f", "-")
            await server.kubectl(*create, stdin=json.dumps(pod))
        except CommandError as error:
            return str(error)
        return ""

    async def is_followed() -> bool:
        return "own node alone" in await refusal(of="n2")

    await server.until(is_followed, "the policy is followed")
    assert await refusal() == ""
    assert "cannot create resource" in await refusal(namespace="default")
    assert "no service account" in await refusal(serviceAccountName="dray-claim-controller")
    assert "no service account" in await refusal(automountServiceAccountToken=True)
    plain = {"name": "mps", "image": "i"}
    secret = {"name": "s", "secret": {"secretName": "dray-operator"}}
    assert "folders of its node alone" in await refusal(volumes=[secret], containers=[plain])
    reads = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "dray-operator", "key": "k"}}}
    for containers in (
        [plain | {"env": [reads]}],
        [plain | {"envFrom": [{"secretRef": {"name": "dray-operator"}}]}],
        [plain, {"name": "other", "image": "i", "env": [reads]}],
    ):
        assert "no variables from Secrets" in await refusal(containers=containers)
    assert "no init containers" in await refusal(initContainers=[plain | {"name": "a"}])
    assert "imagePullSecrets of" in await refusal(imagePullSecrets=[{"name": "dray-operator"}])
    for verb in ("update", "patch", "deletecollection"):
        answer = ("auth", "can-i", verb, "pods", "-n", NAMESPACE, *as_agent)
        with pytest.raises(CommandError, match="no"):
            await server.kubectl(*answer)
