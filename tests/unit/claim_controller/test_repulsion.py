"""Required anti-affinity of pods that are there, against pods that dray is about to bind."""

from typing import Any

import pytest

from dray.domain.names import OWNER_KUBE_SCHEDULER
from dray.kube.ports import NODES, PODS, Changed, Deleted
from dray_claim_controller.execute.repelled import repelled_by
from dray_claim_controller.execute.rules import Mark, Stop, next_step
from dray_claim_controller.observe.picture import Picture

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


def picture_of(*pods: dict[str, Any]) -> Picture:
    picture = Picture()
    for name, labels in NODE_LABELS.items():
        metadata = {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}
        picture.apply(NODES, Changed({"metadata": metadata, "spec": {}, "status": {}}))
    for obj in pods:
        picture.apply(PODS, Changed(obj))
    return picture


def by(picture: Picture, node: str) -> str:
    return repelled_by(picture, picture.pods["comes"], node)


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

    assert by(picture_of(there, LOUD), node) == (name if repelled else "")


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

    assert bool(by(picture_of(there, LOUD), "n1")) == repelled


def test_who_goes_keeps_nobody_away() -> None:
    there = pod("hermit", "n1", (term(),))
    picture = picture_of(there, LOUD)
    assert by(picture, "n1")

    picture.apply(PODS, Deleted(there))

    assert not by(picture, "n1")


def test_a_decision_for_such_a_node_is_taken_back(make: Any) -> None:
    bare = make.claim(protected=False)
    step = next_step(make.observed(make.pod(), bare, repelled="default/hermit"), make.decision())

    assert isinstance(step, Stop)
    assert (step.reason, step.withdraw) == ("repelled", True)
    assert "pod default/hermit keeps it away from node-1" in step.detail


def test_where_kube_scheduler_binds_it_looks_itself(make: Any) -> None:
    bare = make.claim(protected=False)
    pod = make.pod(gated=True, scheduler="default-scheduler")
    observed = make.observed(pod, bare, repelled="default/hermit")

    assert isinstance(next_step(observed, make.decision(binder=OWNER_KUBE_SCHEDULER)), Mark)
