"""The objects of a large cluster as an API server stores them: JSON texts, by kind.

Half of the pods use claims of dray's class and run on the cards. The others are foreign: each
refers to a claim of another driver. The state is stable, as if dray had run for a while.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

import msgspec

from dray.api.claims import EPOCH_SPAN
from dray.api.names import (
    ALLOCATED,
    CLAIM_FINALIZER,
    CLAIM_REFERENCE,
    DECISION,
    DERIVED_FROM_LABEL,
    DEVICE_CLASS,
    DRAY_SCHEDULER,
    DRIVER,
    GPU_REQUEST,
    GPUPOOL,
    OWNER_DRAY,
    POOL_LABEL,
    SHAPE,
)
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    CLASSES,
    NODES,
    PODS,
    POOLS,
    SLICES,
    TEMPLATES,
    Object,
    Resource,
)
from dray_node_agent.decisions.inventory import NodeState, slices
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus

OTHER_CLASS = "other.example.com"
_UIDS = UUID("8f3f2f8e-6a53-5b7c-9b1e-0d5f5f7d3c11")
_TIME = "2026-01-01T00:00:00Z"
_SHAPE = '{"spec":{"devices":{"requests":[{"exactly":{"count":1}}]}}}'


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """The numbers of objects."""

    nodes: int
    gpus: int
    """Per node."""
    pods: int
    pools: int
    namespaces: int

    @property
    def own_pods(self) -> int:
        """Pods that use claims of dray's class; each has one claim."""
        return self.pods // 2


LARGE = ClusterSize(nodes=5_000, gpus=8, pods=100_000, pools=1_000, namespaces=500)
SMALL = ClusterSize(nodes=100, gpus=8, pods=2_000, pools=20, namespaces=10)


def cluster_objects(size: ClusterSize) -> Iterator[tuple[Resource, Object]]:
    """All objects, without resourceVersion."""
    for name in (DEVICE_CLASS, OTHER_CLASS):
        yield CLASSES, {"metadata": _metadata("DeviceClass", name), "spec": {}}
    for number in range(size.pools):
        yield POOLS, _pool(number)
    yield from _nodes(size)
    for number in range(size.namespaces):
        metadata = _metadata("Template", "derived", _namespace(number))
        metadata["labels"] = {DERIVED_FROM_LABEL: "base"}
        yield TEMPLATES, {"metadata": metadata, "spec": {"spec": _spec(DEVICE_CLASS)}}
    for number in range(size.own_pods):
        node = _node_of(number, size)
        yield CLAIMS, own_claim(number, size)
        yield PODS, own_pod(number, size)
        yield BIND_REQUESTS, _bind_request(number, node, size)
    for number in range(size.pods - size.own_pods):
        yield CLAIMS, _foreign_claim(number, size)
        yield PODS, foreign_pod(number, size)


def _nodes(size: ClusterSize) -> Iterator[tuple[Resource, Object]]:
    for number in range(size.nodes):
        name, pool = f"node-{number}", pool_of(number, size)
        snapshot = SimulatedGpus(name, "A100", size.gpus).read()
        state = NodeState(name, uid=_uid("Node", "", name), pool=pool, owner=OWNER_DRAY)
        yield NODES, _node(name, pool)
        for published in slices(snapshot, state, generation=1):
            metadata = _metadata("Slice", published["metadata"]["name"]) | {
                key: value for key, value in published["metadata"].items() if key != "uid"
            }
            yield SLICES, {"metadata": metadata, "spec": published["spec"]}


def pool_of(node: int, size: ClusterSize) -> str:
    """The name of a node's pool."""
    return f"pool-{node % size.pools}"


def _pool(number: int) -> Object:
    name = f"pool-{number}"
    return {"metadata": _metadata("Pool", name) | {"generation": 1}, "spec": {"owner": OWNER_DRAY}}


def _node(name: str, pool: str) -> Object:
    capacity = {"cpu": "128", "memory": "1Ti", "pods": "250", "ephemeral-storage": "2Ti"}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{len(name) % 3}",
        POOL_LABEL: pool,
    }
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "reason": f"Kubelet{kind}",
            "message": "as kubelet reports it",
            "lastHeartbeatTime": _TIME,
            "lastTransitionTime": _TIME,
        }
        for kind in kinds
    ]
    images = [
        {"names": [f"registry.example.com/team/image-{n}:1.0"], "sizeBytes": 10**8 + n}
        for n in range(30)
    ]
    status = {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": conditions,
        "images": images,
    }
    return {"metadata": _metadata("Node", name) | {"labels": labels}, "spec": {}, "status": status}


def own_claim(number: int, size: ClusterSize, life: int = 0) -> Object:
    """A claim of dray's class that holds a share of a card; ``life`` distinguishes successive
    claims of the same name."""
    node = _node_of(number, size)
    name, namespace = f"own-{number}-gpu", _namespace(number % size.namespaces)
    device = f"node-{node}-gpu-{number // size.nodes % size.gpus}"
    consumed = {"virtual_tflops": "10", "virtual_vram": "1Gi"}
    share = {
        "request": GPU_REQUEST,
        "driver": DRIVER,
        "pool": f"node-{node}",
        "device": device,
        "shareID": _uid(f"share/{number}"),
        "consumedCapacity": consumed,
    }
    metadata = _metadata("Claim", name, namespace) | {
        "labels": {POOL_LABEL: pool_of(node, size), DERIVED_FROM_LABEL: "base"},
        "annotations": {DECISION: str(EPOCH_SPAN + number), ALLOCATED: "true"},
        "finalizers": [CLAIM_FINALIZER],
        "ownerReferences": [_owner(f"own-{number}", namespace, life)],
        "uid": _uid("Claim", namespace, name, str(life)),
    }
    return {
        "metadata": metadata,
        "spec": _spec(DEVICE_CLASS),
        "status": _allocated(share, node, f"own-{number}", namespace, life),
    }


def _foreign_claim(number: int, size: ClusterSize) -> Object:
    name, namespace = f"foreign-{number}-nic", _namespace(number % size.namespaces)
    node = _node_of(number, size)
    share = {
        "request": GPU_REQUEST,
        "driver": OTHER_CLASS,
        "pool": f"other-{node}",
        "device": f"nic-{number // size.nodes}",
    }
    return {
        "metadata": _metadata("Claim", name, namespace)
        | {"ownerReferences": [_owner(f"foreign-{number}", namespace)]},
        "spec": _spec(OTHER_CLASS),
        "status": _allocated(share, node, f"foreign-{number}", namespace),
    }


def own_pod(number: int, size: ClusterSize, life: int = 0) -> Object:
    """A pod that runs with its claim."""
    namespace, node = _namespace(number % size.namespaces), _node_of(number, size)
    metadata = _metadata("Pod", f"own-{number}", namespace)
    metadata["uid"] = _pod_uid(namespace, f"own-{number}", life)
    metadata["annotations"] = {GPUPOOL: pool_of(node, size), SHAPE: _SHAPE}
    return _pod(metadata, number, node, f"own-{number}-gpu", "derived")


def foreign_pod(number: int, size: ClusterSize) -> Object:
    """A pod with a claim of another driver."""
    namespace = _namespace(number % size.namespaces)
    metadata = _metadata("Pod", f"foreign-{number}", namespace)
    metadata["uid"] = _pod_uid(namespace, f"foreign-{number}")
    return _pod(metadata, number, _node_of(number, size), f"foreign-{number}-nic", "other")


def _pod(metadata: Object, number: int, node: int, claim: str, template: str) -> Object:
    container = {
        "name": "main",
        "image": "registry.example.com/team/job:1.0",
        "args": ["--config", "/etc/job/config.yaml"],
        "env": [{"name": f"VARIABLE_{n}", "value": f"value-{n}-{number}"} for n in range(8)],
        "resources": {
            "requests": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"memory": "2Gi"},
            "claims": [{"name": CLAIM_REFERENCE}],
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/job", "readOnly": True}],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    spec: Object = {
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "job", "defaultMode": 420}}],
        "restartPolicy": "Never",
        "serviceAccountName": "default",
        "schedulerName": DRAY_SCHEDULER if template == "derived" else "default-scheduler",
        "nodeName": f"node-{node}",
        "priority": 0,
        "tolerations": [
            {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute"}
            for why in ("not-ready", "unreachable")
        ],
        "resourceClaims": [{"name": CLAIM_REFERENCE, "resourceClaimTemplateName": template}],
    }
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": _TIME}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    status: Object = {
        "phase": "Running",
        "conditions": conditions,
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "startTime": _TIME,
        "qosClass": "Burstable",
        "resourceClaimStatuses": [{"name": CLAIM_REFERENCE, "resourceClaimName": claim}],
    }
    labels = {"app": f"app-{number % 1000}", "batch.kubernetes.io/job-name": f"job-{number}"}
    return {"metadata": metadata | {"labels": labels}, "spec": spec, "status": status}


def _bind_request(number: int, node: int, size: ClusterSize) -> Object:
    namespace = _namespace(number % size.namespaces)
    uid = _pod_uid(namespace, f"own-{number}")
    return {
        "metadata": _metadata("BindRequest", f"own-{number}", namespace)
        | {"ownerReferences": [_owner(f"own-{number}", namespace)]},
        "spec": {"podUID": uid, "node": f"node-{node}"},
        "status": {"phase": "Succeeded"},
    }


def _allocated(share: Object, node: int, pod: str, namespace: str, life: int = 0) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [f"node-{node}"]}
    user = {"resource": "pods", "name": pod, "uid": _pod_uid(namespace, pod, life)}
    return {
        "allocation": {
            "devices": {"results": [share]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [user],
    }


def _spec(device_class: str) -> Object:
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    if device_class == DEVICE_CLASS:
        requests = {"virtual_tflops": "10", "virtual_vram": "1Gi"}
        exactly["capacity"] = {"requests": requests}
        expression = f'device.attributes["{DRIVER}"].model == "A100"'
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"devices": {"requests": [{"name": GPU_REQUEST, "exactly": exactly}]}}


def _node_of(pod: int, size: ClusterSize) -> int:
    return pod % size.nodes


def _namespace(number: int) -> str:
    return f"team-{number}"


def _pod_uid(namespace: str, pod: str, life: int = 0) -> str:
    return _uid("Pod", namespace, pod, str(life))


def _owner(pod: str, namespace: str, life: int = 0) -> Object:
    uid = _pod_uid(namespace, pod, life)
    return {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": True}


def _uid(*parts: str) -> str:
    return str(uuid5(_UIDS, "/".join(parts)))


def _metadata(kind: str, name: str, namespace: str = "") -> Object:
    """Metadata as Go writes it: the name first, uid and resourceVersion next to each other."""
    metadata: Object = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {}}
    return metadata | {
        "uid": _uid(kind, namespace, name),
        "resourceVersion": "0",
        "creationTimestamp": _TIME,
        "managedFields": [
            {
                "manager": manager,
                "operation": "Update",
                "apiVersion": "v1",
                "time": _TIME,
                "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            }
            for manager in ("kube-controller-manager", "kubelet")
        ],
    }


def encoded(obj: Object, revision: int) -> bytes:
    """The text of an object at a revision."""
    obj["metadata"]["resourceVersion"] = str(revision)
    return msgspec.json.encode(obj)
