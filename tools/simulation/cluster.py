"""The simulated cluster's objects, and pods after dray's webhook."""

import copy
from typing import Any

import jsonpatch

from dray.api.names import (
    BASE_TEMPLATE,
    DEVICE_CLASS,
    DRAY_NAMESPACE,
    GPU_COUNT,
    GPU_REQUEST,
    GPUPOOL,
    POOL_LABEL,
    TEMPLATE_LABEL,
    TFLOPS_REQUEST,
    VRAM_REQUEST,
)
from dray.kube.convert import policy_from, pool_from, revision_of
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    POOLS,
    TEMPLATES,
    Object,
    Resource,
)
from dray.messages.facts import ClusterObserved, PolicyObserved, PoolObserved, TemplateObserved
from dray_webhook.decisions.injection import AdmissionIds
from dray_webhook.decisions.pods import admit_pod
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionRequest
from dray_webhook.decisions.view import View
from tools.simulation.refusals import TENANT

TEAM = "team"
DEDICATED, SHARED, SPARE = "dedicated", "shared", "spare"
"""Pools; administrators create and delete the spare one."""
LIFE = "chaos/life-s"
"""Annotation: seconds that the pod runs; without it, the pod runs until it is deleted."""
CPU, MEMORY = 8, "64Gi"
"""The capacity of every node."""

_POLICY = {
    "metadata": {"name": "policy"},
    "spec": {"dra": {"enable": True, "resourceClaimTemplateName": BASE_TEMPLATE}},
}


async def create_cluster(kube: MemoryKube, nodes: dict[str, str]) -> None:
    """Create all objects except pods; ``nodes`` are pools by node name."""
    for name in (DRAY_NAMESPACE, TEAM, TENANT):
        await kube.create(NAMESPACES, {"metadata": {"name": name}})
    await kube.create(CLASSES, {"metadata": {"name": DEVICE_CLASS}, "spec": {}})
    await kube.create(POLICIES, copy.deepcopy(_POLICY))
    await kube.create(TEMPLATES, _base(), DRAY_NAMESPACE)
    for pool in (DEDICATED, SHARED):
        await kube.create(POOLS, pool_object(pool))
    for name, pool in nodes.items():
        await kube.create(NODES, node_object(name, pool))


def pool_object(name: str) -> Object:
    """A GPUPool."""
    spec = {"schedulingConfigTemplate": "policy", "dedicated": name == DEDICATED}
    return {"metadata": {"name": name}, "spec": spec}


def _base() -> Object:
    exactly = {
        "deviceClassName": DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": "true"}}],
    }
    requests = [{"name": GPU_REQUEST, "exactly": exactly}]
    return {
        "metadata": {"name": BASE_TEMPLATE, "labels": {TEMPLATE_LABEL: "true"}},
        "spec": {"metadata": {}, "spec": {"devices": {"requests": requests}}},
    }


def node_object(name: str, pool: str) -> Object:
    """A node that its kubelet has registered."""
    return {
        "metadata": {"name": name, "labels": {POOL_LABEL: pool, "kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": str(CPU), "memory": MEMORY, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def gpu_pod(
    name: str, pool: str, *, tflops: int, vram_gib: int, count: int, life_s: float | None
) -> Object:
    """A pod with GPUs, as its user creates it."""
    annotations = {
        GPUPOOL: pool,
        TFLOPS_REQUEST: str(tflops),
        VRAM_REQUEST: f"{vram_gib}Gi",
        GPU_COUNT: str(count),
    }
    pod = plain_pod(name, life_s=life_s)
    pod["metadata"]["annotations"] |= annotations
    return pod


def plain_pod(name: str, *, life_s: float | None) -> Object:
    """A pod without GPUs."""
    annotations = {} if life_s is None else {LIFE: str(life_s)}
    container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": TEAM, "annotations": annotations},
        "spec": {"containers": [container]},
    }


def admit(kube: MemoryKube, pod: Object) -> Object:
    """The pod after a webhook that knows the newest objects."""
    view = webhook_view(kube)
    request = AdmissionRequest.model_validate(
        {
            "uid": "review",
            "namespace": pod["metadata"]["namespace"],
            "name": pod["metadata"]["name"],
            "object": pod,
        }
    )
    answer = admit_pod(
        request, view, Installation(DRAY_NAMESPACE), AdmissionIds(pod["metadata"]["name"], "")
    )
    if not answer.allowed:
        raise ValueError(answer.message)
    made: Object = jsonpatch.apply_patch(pod, list(answer.patch))
    return made


def webhook_view(kube: MemoryKube) -> View:
    """The view of a webhook that knows the newest objects."""
    view = View()
    for obj in _all(kube, POOLS):
        view.apply(PoolObserved(revision=revision_of(obj), pool=pool_from(obj)))
    for obj in _all(kube, POLICIES):
        view.apply(PolicyObserved(revision=revision_of(obj), policy=policy_from(obj)))
    base = kube.store.get(TEMPLATES, BASE_TEMPLATE, DRAY_NAMESPACE)
    view.apply(
        TemplateObserved(
            revision=revision_of(base),
            namespace=DRAY_NAMESPACE,
            name=BASE_TEMPLATE,
            labels=base["metadata"]["labels"],
            spec=base["spec"],
        )
    )
    view.apply(ClusterObserved(revision=1, version=kube.git_version))
    return view


def _all(kube: MemoryKube, resource: Resource) -> list[Object]:
    return list(kube.store.of(resource).values())


def pods(kube: MemoryKube) -> list[Any]:
    """All pods, in the order of their creation."""
    return _all(kube, PODS)
