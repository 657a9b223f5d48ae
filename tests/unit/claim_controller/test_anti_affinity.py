"""Required anti-affinity of pods that are there, against pods that dray is about to bind."""

from typing import Any

import pytest

from dray.api.names import OWNER_KUBE_SCHEDULER
from dray.kube.ports import NODES, PODS, Changed, Deleted
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.decisions.next_step import Mark, Stop, excluding_pod, next_step

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE = "kubernetes.io/hostname", "zone"
NODE_LABELS = {
    "n1": {HOST: "n1", ZONE: "a"},
    "n2": {HOST: "n2", ZONE: "a"},
    "n3": {HOST: "n3"},
}


def pod(name: str, node: str = "", terms: tuple[Any, ...] = (), **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [], "schedulerName": "tensor-fusion-scheduler"}
    if node:
        spec["nodeName"] = node
    if terms:
        spec["affinity"] = {"podAntiAffinity": {REQUIRED: list(terms)}}
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    return {
        "metadata": {
            "name": name,
            "namespace": more.get("namespace", "default"),
            "uid": name,
            "resourceVersion": "1",
            "labels": more.get("labels", {}),
            "annotations": {"tensor-fusion.ai/shape": "{}", "tensor-fusion.ai/gpupool": "p"},
        },
        "spec": spec,
        "status": {"phase": more.get("phase", "Pending")},
    }


def term(topology: str = HOST, **more: Any) -> dict[str, Any]:
    return {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": "loud"}}, **more}


def cache_of(*pods: dict[str, Any]) -> ObjectCache:
    cache = ObjectCache()
    for name, labels in NODE_LABELS.items():
        metadata = {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}
        cache.apply(NODES, Changed({"metadata": metadata, "spec": {}, "status": {}}))
    for obj in pods:
        cache.apply(PODS, Changed(obj))
    return cache


def by(cache: ObjectCache, node: str) -> str:
    return excluding_pod(cache, cache.pods["comes"], node)


LOUD = pod("comes", labels={"app": "loud"})


@pytest.mark.parametrize(
    ("there", "node", "repelled"),
    [
        (pod("hermit", "n1", (term(),)), "n1", True),
        (pod("hermit", "n1", (term(),)), "n2", False),
        (pod("hermit", "n1", (term(ZONE),)), "n2", True),
        (pod("hermit", "n3", (term(ZONE),)), "n3", False),
        (pod("hermit", "", (term(),)), "n1", False),
        (pod("hermit", "n1", (term(),), phase="Succeeded"), "n1", False),
        (pod("hermit", "n1", (term(),), namespace="other"), "n1", False),
        (pod("hermit", "n1", (term(namespaces=["default"]),), namespace="other"), "n1", True),
        (pod("hermit", "n1", (term(namespaceSelector={}),), namespace="other"), "n1", True),
        (pod("hermit", "n1", (term(labelSelector=None),)), "n1", False),
        (pod("hermit", "n1", (term(labelSelector={}),)), "n1", True),
        (pod("hermit", "n1"), "n1", False),
    ],
)
def test_a_pod_is_kept_away_where_kube_scheduler_would_keep_it_away(
    there: dict[str, Any], node: str, repelled: bool
) -> None:
    name = f"{there['metadata']['namespace']}/hermit"

    assert by(cache_of(there, LOUD), node) == (name if repelled else "")


@pytest.mark.parametrize(
    ("operator", "values", "repelled"),
    [
        ("In", ["loud", "noisy"], True),
        ("In", ["noisy"], False),
        ("NotIn", ["noisy"], True),
        ("NotIn", ["loud"], False),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
    ],
)
def test_expressions_select_as_kubernetes_selects(
    operator: str, values: list[str] | None, repelled: bool
) -> None:
    wanted = {"key": "app", "operator": operator, **({"values": values} if values else {})}
    there = pod("hermit", "n1", (term(labelSelector={"matchExpressions": [wanted]}),))

    assert bool(by(cache_of(there, LOUD), "n1")) == repelled


def test_who_goes_keeps_nobody_away() -> None:
    there = pod("hermit", "n1", (term(),))
    cache = cache_of(there, LOUD)
    assert by(cache, "n1")

    cache.apply(PODS, Deleted(there))

    assert not by(cache, "n1")


def test_a_decision_for_such_a_node_is_taken_back(make: Any) -> None:
    bare = make.claim(protected=False)
    step = next_step(make.observed(make.pod(), bare, excluded_by="default/hermit"), make.decision())

    assert isinstance(step, Stop)
    assert (step.reason, step.withdraw) == ("repelled", True)
    assert "pod default/hermit keeps it away from node-1" in step.detail


def test_where_kube_scheduler_binds_it_looks_itself(make: Any) -> None:
    bare = make.claim(protected=False)
    pod = make.pod(gated=True, scheduler="default-scheduler")
    observed = make.observed(pod, bare, excluded_by="default/hermit")

    assert isinstance(next_step(observed, make.decision(binder=OWNER_KUBE_SCHEDULER)), Mark)
