"""The same cluster for every row: nodes with cards, claims that hold some of them, pods."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from dray.api.names import (
    BASE_TEMPLATE,
    CLAIM_REFERENCE,
    DEDICATED_TAINT,
    DEVICE_CLASS,
    DRA_CEL_EXPRESSION,
    DRIVER,
    GPU_REQUEST,
    GPUPOOL,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
    TEMPLATE_LABEL,
    TFLOPS_REQUEST,
    VRAM_REQUEST,
)
from dray.api.pods import Pool
from dray.kube.ports import CLAIMS, NATIVE_POD_GROUPS, TEMPLATES, Object
from dray.messages.facts import TemplateObserved
from dray_node_agent.decisions.inventory import NodeState, slices
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_sandbox.layout import SimulatedNode, simulated_nodes
from dray_webhook.decisions.annotations import AnnotationFindings, read_annotations
from dray_webhook.decisions.request_builder import DEFAULT_LANGUAGE, ApiFeatures, RequestInput
from dray_webhook.decisions.selectors import selectors_of
from dray_webhook.decisions.shape import derive

POOL = "big"
NAMESPACE = "bench"
ANNOTATIONS = {
    GPUPOOL: POOL,
    TFLOPS_REQUEST: "100",
    VRAM_REQUEST: "16Gi",
    DRA_CEL_EXPRESSION: 'device.attributes["model"] == "A100" && '
    'device.attributes["phase"] == "Running"',
}
"""The request of every pod. With the pool's clause, its selector has three clauses."""
DEDICATED = {"key": DEDICATED_TAINT, "value": POOL, "effect": "NoSchedule"}
BASE_SPEC: dict[str, Any] = {
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": GPU_REQUEST,
                    "exactly": {
                        "deviceClassName": DEVICE_CLASS,
                        "allocationMode": "ExactCount",
                        "count": 1,
                    },
                }
            ]
        }
    }
}
_NAMESPACE_OF_SHARES = UUID("5b4b5d0e-5a1c-55a5-9d7f-2f0a8f4a1c63")


@dataclass(frozen=True, slots=True)
class Size:
    """How large the cluster is."""

    nodes: int
    gpus: int
    """Per node."""
    pods: int
    full: float
    """Share of the cards that are held before the first pod is created."""
    within_s: float = 600.0
    """How long a row may take to bind its pods."""
    gang: int = 0
    """Pods of each Kubernetes PodGroup; 0: pods are in no group."""

    def simulated(self) -> tuple[SimulatedNode, ...]:
        """The nodes, all in one pool."""
        return simulated_nodes(self.nodes, gpus=self.gpus, models=("A100",), pools=(POOL,))

    def held(self) -> list[int]:
        """How many cards are held on each node."""
        share = self.full * self.gpus
        return [int((n + 1) * share + 1e-9) - int(n * share + 1e-9) for n in range(self.nodes)]


def state_of(node: SimulatedNode, *, dray: bool) -> NodeState:
    """The state that the node's agent knows; facts from the bus do not change it."""
    return NodeState(node.name, pool=POOL, owner=OWNER_DRAY if dray else OWNER_KUBE_SCHEDULER)


def base_template() -> Object:
    """The base template that a user of dray writes."""
    return {
        "apiVersion": TEMPLATES.api_version,
        "kind": TEMPLATES.kind,
        "metadata": {"name": BASE_TEMPLATE, "labels": {TEMPLATE_LABEL: "true"}},
        "spec": BASE_SPEC,
    }


def derived_template() -> Object:
    """The template that dray would derive for these pods, for rows without dray."""
    base = TemplateObserved(
        revision=1, namespace=NAMESPACE, name=BASE_TEMPLATE, labels={}, spec=BASE_SPEC
    )
    findings = AnnotationFindings()
    asked = read_annotations(ANNOTATIONS, findings)
    selectors = selectors_of(asked, POOL, DEFAULT_LANGUAGE).expressions
    assert not findings.errors, findings.errors
    shape = derive(
        base, (RequestInput(asked, selectors),), Pool(name=POOL, uid=""), ApiFeatures()
    ).content
    return {
        "apiVersion": TEMPLATES.api_version,
        "kind": TEMPLATES.kind,
        "metadata": {"name": "derived"},
        "spec": {"spec": shape["spec"]},
    }


def pod_group(name: str, pods: int) -> Object:
    """A PodGroup that starts with ``pods`` pods."""
    policy = {"gang": {"minCount": pods}}
    return {
        "apiVersion": NATIVE_POD_GROUPS.api_version,
        "kind": NATIVE_POD_GROUPS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": policy},
    }


def pod(name: str, *, annotated: bool = False, claims: bool = False, group: str = "") -> Object:
    """A pod with dray's annotations, or with a claim, or with neither; ``group``: its PodGroup."""
    container: Object = {"name": "app", "image": "app", "resources": {"requests": {"cpu": "10m"}}}
    spec: Object = {"containers": [container], "terminationGracePeriodSeconds": 0}
    metadata: Object = {"name": name, "namespace": NAMESPACE}
    if annotated:
        metadata["annotations"] = ANNOTATIONS
    if claims:
        container["resources"]["claims"] = [{"name": CLAIM_REFERENCE}]
        reference = {"name": CLAIM_REFERENCE, "resourceClaimTemplateName": "derived"}
        spec["resourceClaims"] = [reference]
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def held_claims(size: Size) -> Iterator[tuple[Object, Object]]:
    """A claim for every node on which cards are held, and its status: whole cards."""
    for node, count in zip(size.simulated(), size.held(), strict=True):
        if count:
            yield _claim(node, count), {"status": {"allocation": _allocation(node, count)}}


def _claim(node: SimulatedNode, count: int) -> Object:
    request = {"deviceClassName": DEVICE_CLASS, "allocationMode": "ExactCount", "count": count}
    return {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {"name": f"held-{node.name}", "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [{"name": GPU_REQUEST, "exactly": request}]}},
    }


def _allocation(node: SimulatedNode, count: int) -> Object:
    reading = SimulatedGpus(node.name, node.model, node.gpus).read()
    (published,) = slices(reading, state_of(node, dray=True), generation=1)
    devices: Sequence[Object] = published["spec"]["devices"][:count]
    field = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    return {
        "devices": {"results": [_share(node, device) for device in devices]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


def _share(node: SimulatedNode, device: Object) -> Object:
    return {
        "request": GPU_REQUEST,
        "driver": DRIVER,
        "pool": node.name,
        "device": device["name"],
        "shareID": str(uuid5(_NAMESPACE_OF_SHARES, device["name"])),
        # A claim that states no amounts takes the default of every capacity.
        "consumedCapacity": {
            name: entry["requestPolicy"]["default"] for name, entry in device["capacity"].items()
        },
    }
