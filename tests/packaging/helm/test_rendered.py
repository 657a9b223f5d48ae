"""What the chart renders, judged without a cluster: rights, tokens, connections, replicas."""

import asyncio
import functools
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.packaging.helm.installation import CHART, NAMESPACE, RELEASE

from dray.api.names import API_GROUP, GPUPOOL, OWNER_DRAY, OWNER_KUBE_SCHEDULER
from dray.kube.ports import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    BIND_REQUESTS,
    CLAIMS,
    CLASSES,
    CRDS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    POOLS,
    SLICES,
    TEMPLATES,
    Resource,
)
from dray_cli.cluster_names import GROUP_KINDS
from dray_cli.operator_secret import MUTATING_WEBHOOKS
from dray_sandbox.apiserver import matchconditions
from tools.helm import build_helm

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]  # Helm may have to be built.

READ_BY_PEOPLE = (
    *(PODS, NODES, NAMESPACES, EVENTS, CLAIMS, TEMPLATES, SLICES, CLASSES, POOLS, POLICIES),
    *(BIND_REQUESTS, *GROUP_KINDS, CRDS, MUTATING_WEBHOOKS),
    *(ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS),
)
"""What the command line gets or lists."""
EXTERNAL = {"enabled": False, "external": {"url": "tls://n:4222", "credentialsSecret": "ours"}}
ON_THE_BUS = {"dray-webhook", "dray-claim-controller", "dray-allocator", "dray-node-agent"}
MPS = {"nodeAgent": {"mps": {"enabled": True}}}
PLAIN = {"metadata": {}, "spec": {"containers": [{"name": "a"}]}}
OF_VOLCANO = {"metadata": {}, "spec": PLAIN["spec"] | {"schedulerName": "volcano"}}
LIMITED = [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
WITH_RESOURCE = {"metadata": {}, "spec": {"containers": LIMITED}}


def manifests(values: str, namespace: str = NAMESPACE, kubernetes: str = "1.36.3") -> str:
    """What ``helm template`` prints for these values (YAML)."""
    helm = str(asyncio.run(build_helm(print)))
    flags = ("-n", namespace, "--kube-version", kubernetes, "-f", "-")
    command = [helm, "template", RELEASE, str(CHART), *flags]
    done = subprocess.run(command, input=values, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def _rendered(values: str) -> tuple[Any, ...]:
    return tuple(one for one in yaml.safe_load_all(manifests(values)) if one)


def rendered(**values: Any) -> tuple[Any, ...]:
    """The objects of an installation with these values."""
    return _rendered(yaml.safe_dump(values))


def named(kind: str, name: str, objects: tuple[Any, ...]) -> Any:
    (found,) = (one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def rules(kind: str, name: str, resource: str, **values: Any) -> list[Any]:
    """Those of a role about a resource."""
    role = named(kind, name, rendered(**values))
    return [rule for rule in role["rules"] if resource in rule["resources"]]


def pods(**values: Any) -> dict[str, Any]:
    """All pods that the objects make, by the name of the object."""
    found = {}
    for one in rendered(**values):
        spec = one.get("spec") or {}
        template = (spec.get("jobTemplate", {}).get("spec") or spec).get("template")
        if one["kind"] == "Pod" or template:
            found[one["metadata"]["name"]] = template or one
        if "pod.yaml" in one.get("data", {}):
            found[one["metadata"]["name"]] = yaml.safe_load(one["data"]["pod.yaml"])
    return found


@pytest.mark.parametrize("resource", READ_BY_PEOPLE, ids=lambda one: f"{one.plural}.{one.group}")
def test_people_with_the_operators_role_read_all_that_the_command_line_asks_for(
    resource: Resource,
) -> None:
    plural = resource.served_as or resource.plural
    verbs = [
        verb
        for rule in rules("ClusterRole", "dray-operator", plural)
        if resource.group in rule["apiGroups"]
        for verb in rule["verbs"]
    ]

    assert {"get", "list"} <= set(verbs) <= {"get", "list", "watch"}


def test_people_open_port_forwards_to_nats_alone() -> None:
    (rule,) = rules("Role", "dray-operator", "pods/portforward", nats={"replicas": 3})

    assert rule["resourceNames"] == ["dray-nats-0", "dray-nats-1", "dray-nats-2"]
    assert rules("Role", "dray-operator", "pods/portforward", nats=EXTERNAL) == []


def test_the_job_of_an_upgrade_changes_drays_custom_resources_alone() -> None:
    crds = [yaml.safe_load(path.read_text()) for path in (CHART / "crds").glob("*.yaml")]
    kinds = {one["metadata"]["name"]: one["spec"]["group"] for one in crds}
    allowed = {
        verb: rule.get("resourceNames")
        for rule in rules("ClusterRole", "dray-setup", CRDS.plural)
        for verb in rule["verbs"]
    }

    assert allowed.pop("create") is None  # RBAC can't name what does not exist yet.
    assert {verb: set(names) for verb, names in allowed.items()} == {
        "get": kinds.keys(),
        "patch": {name for name, group in kinds.items() if group == API_GROUP},
    }


def test_a_pod_has_a_token_only_where_it_calls_kubernetes() -> None:
    objects = rendered(**MPS)
    mounted = {
        name for name, pod in pods(**MPS).items() if pod["spec"]["automountServiceAccountToken"]
    }

    jobs = {one["metadata"]["name"] for one in objects if one["kind"] in ("Job", "CronJob")}
    assert len(jobs) == 6
    assert mounted == {"dray-claim-controller", "dray-node-agent", *jobs}
    accounts = [one for one in objects if one["kind"] == "ServiceAccount"]
    assert all(one["automountServiceAccountToken"] is False for one in accounts)


def selects(selector: dict[str, Any], pod: Any) -> bool:
    """Whether a pod is meant by a label selector."""
    labels = pod["metadata"]["labels"]
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        one["operator"] == "In" and labels.get(one["key"]) in one["values"]
        for one in selector.get("matchExpressions", ())
    )


def let_in(target: Any, source: Any, policies: list[Any]) -> Iterator[int]:
    """Ports of a pod that another one reaches; None as the source: one that is not dray's."""
    ports = [port for one in target["spec"]["containers"] for port in one.get("ports", ())]
    applied = [one["spec"] for one in policies if selects(one["spec"]["podSelector"], target)]
    assert applied, "what no policy selects is open"
    for rule in (rule for one in applied for rule in one["ingress"]):
        peers = [peer["podSelector"] for peer in rule.get("from", ())]
        if "from" in rule and not (source and any(selects(one, source) for one in peers)):
            continue
        names = [one["port"] for one in rule["ports"]]
        yield from (port["containerPort"] for port in ports if port["name"] in names)


def test_the_policies_let_in_what_the_services_need_and_nothing_else() -> None:
    """No network of a test enforces them. A pod needs NATS if it knows where NATS is."""
    values = {**MPS, "networkPolicies": {"enabled": True}, "nats": {"replicas": 3}}
    policies = [one for one in rendered(**values) if one["kind"] == "NetworkPolicy"]
    every: dict[str, Any] = {**pods(**values), "somebody's": None}
    reached = {
        (source, target, port)
        for target, pod in every.items()
        if pod
        for source, other in every.items()
        for port in let_in(pod, other, policies)
    }

    def knows_nats(pod: Any) -> bool:
        (container,) = pod["spec"]["containers"]
        variables = {one["name"] for one in container.get("env", ())}
        servers = (one for one in container.get("args", ()) if one.startswith("--nats-server="))
        return "DRAY_NATS__URL" in variables or any(servers)

    on_the_bus = {name for name, pod in every.items() if pod and knows_nats(pod)}
    assert on_the_bus == ON_THE_BUS | {"dray-renewal"}
    wanted = {(source, target, 8080) for source in every for target in ON_THE_BUS}
    wanted |= {(source, "dray-webhook", 8443) for source in every}
    wanted |= {(source, "dray-nats", 4222) for source in on_the_bus}
    # `dray-trust` has the account of the daily job, and calls no server.
    wanted |= {("dray-trust", "dray-nats", 4222), ("dray-nats", "dray-nats", 6222)}
    assert reached == wanted


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_replicas_are_kept_apart_and_go_one_at_a_time(kind: str) -> None:
    objects = rendered(nats={"replicas": 3})
    found = [one for one in objects if one["kind"] == kind]

    assert len(found) == (3 if kind == "Deployment" else 1)
    for one in found:
        spec, name = one["spec"]["template"]["spec"], one["metadata"]["name"]
        assert one["spec"]["replicas"] >= 2
        [(apart,)] = spec["affinity"]["podAntiAffinity"].values()
        (zones,) = spec["topologySpreadConstraints"]
        budget = named("PodDisruptionBudget", name, objects)["spec"]
        assert budget["maxUnavailable"] == 1
        selector = one["spec"]["selector"]
        assert apart["podAffinityTerm"]["labelSelector"] == zones["labelSelector"] == selector
        assert budget["selector"] == selector


def test_without_a_pool_of_the_chart_its_test_asks_for_the_default_one() -> None:
    def asked(**values: Any) -> str | None:
        test = named("Pod", "dray-test", rendered(**values))
        return test["metadata"]["annotations"].get(GPUPOOL)

    assert asked() == "default"
    assert asked(defaultPool={"create": False}) is None


def reviewed(pod: dict[str, Any], **values: Any) -> bool:
    """Whether a webhook is called for a new pod."""
    registered = named("MutatingWebhookConfiguration", "dray-webhook", rendered(**values))
    given = {"object": pod, "request": {"namespace": "team-a", "operation": "CREATE"}}
    return any(
        all(
            matchconditions.evaluate(one["expression"], given) for one in webhook["matchConditions"]
        )
        for webhook in registered["webhooks"]
        if any(
            "pods" in rule["resources"] and "CREATE" in rule["operations"]
            for rule in webhook["rules"]
        )
    )


def test_the_webhook_is_called_for_the_scheduler_names_and_resources_of_the_values() -> None:
    others: dict[str, Any] = {"schedulerNames": ["volcano"], "gpuResources": ["nvidia.com/gpu"]}

    assert not reviewed(PLAIN, **others)
    for pod in (OF_VOLCANO, WITH_RESOURCE):
        assert not reviewed(pod)
        assert reviewed(pod, **others)


def test_an_installation_in_another_namespace_names_no_other_one() -> None:
    values = yaml.safe_dump({**MPS, "networkPolicies": {"enabled": True}})

    assert "dray-system" in manifests(values)
    assert "dray-system" not in manifests(values, "gpu")


@pytest.mark.parametrize(
    ("kubernetes", "owner"),
    [
        ("1.34.0", OWNER_KUBE_SCHEDULER),
        ("1.35.9-gke.1", OWNER_KUBE_SCHEDULER),
        ("1.36.0", OWNER_DRAY),
        ("1.37.1", OWNER_DRAY),
    ],
)
def test_dray_has_the_default_pool_where_the_server_keeps_shares(
    kubernetes: str, owner: str
) -> None:
    def owner_with(values: str) -> Any:
        objects = filter(None, yaml.safe_load_all(manifests(values, kubernetes=kubernetes)))
        return named("GPUPool", "default", tuple(objects))["spec"]["owner"]

    assert owner_with("{}") == owner
    assert owner_with("defaultPool: {owner: dray}") == OWNER_DRAY
