"""Random objects of the kinds that dray records, as far as decisions read them."""

from typing import Any

from hypothesis import strategies as st

from dray.api.names import (
    ALLOCATION_GATE,
    CLAIM_FINALIZER,
    CLAIM_REFERENCE,
    DECISION,
    DEVICE_CLASS,
    DRIVER,
    GPUPOOL,
    OWNER_TAINT,
    POD_CLAIM_NAME,
    POOL_LABEL,
    SHAPE,
    VOID,
)
from dray.kube.ports import Object

NODE = "n1"
_P = "tensor-fusion.ai/"
_ASKED = st.fixed_dictionaries(
    {},
    optional={
        _P + "tflops-request": st.sampled_from(["100", "1k", "much"]),
        _P + "vram-request": st.sampled_from(["16Gi", "none"]),
        GPUPOOL: st.sampled_from(["shared", "dedicated", "without-dra", "nowhere"]),
        _P + "gpu-count": st.sampled_from(["1", "2", "99"]),
        _P + "gpu-model": st.just("A100"),
        _P + "inject-container": st.sampled_from(["app", "init", "nobody"]),
        _P + "container-gpus": st.sampled_from(['{"app": 1}', '{"app": {"gpu-count": 2}}', "[]"]),
        _P + "prefer": st.just("cost"),
        _P + "qos": st.sampled_from(["high", "low"]),
        _P + "not-known": st.just("yes"),
        _P + "void": st.just("7"),
    },
)
_QUANTITIES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/thing", "hugepages-2Mi"]),
    st.sampled_from(["1", "500m", "2Gi"]),
    max_size=2,
)
_USES = st.lists(st.sampled_from([{"name": CLAIM_REFERENCE}, {"name": "other"}]), max_size=2)
_RESOURCES = st.fixed_dictionaries(
    {}, optional={"requests": _QUANTITIES, "limits": _QUANTITIES, "claims": _USES}
)
_PORTS = st.lists(
    st.sampled_from([{"containerPort": 80}, {"containerPort": 80, "hostPort": 80}]), max_size=1
)
_AFFINITIES = st.sampled_from(
    [
        {},
        {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app": "a"}},
                    }
                ]
            }
        },
    ]
)
_VOLUMES = st.sampled_from(["emptyDir", "secret", "csi", "persistentVolumeClaim"]).map(
    lambda kind: {"name": "data", kind: {}}
)
_TOLERATIONS = st.lists(
    st.sampled_from(
        [{"key": "tensor-fusion.ai/dedicated", "operator": "Exists"}, {"key": "a", "value": "b"}]
    ),
    max_size=2,
)
_ENTRIES = st.sampled_from(
    [
        {"name": CLAIM_REFERENCE, "resourceClaimTemplateName": "tensor-fusion-gpu-template"},
        {"name": "other", "resourceClaimName": "c1"},
    ]
)


def _containers(name: str) -> st.SearchStrategy[list[Object]]:
    one = st.fixed_dictionaries(
        {"name": st.just(name)},
        optional={
            "resources": _RESOURCES,
            "ports": _PORTS,
            "restartPolicy": st.sampled_from(["Always", "OnFailure"]),
        },
    )
    return one.map(lambda container: [container])


_POD_SPECS = st.fixed_dictionaries(
    {"containers": _containers("app")},
    optional={
        "affinity": _AFFINITIES,
        "hostNetwork": st.booleans(),
        "initContainers": _containers("init"),
        "nodeName": st.just(NODE),
        "nodeSelector": st.just({"zone": "a"}),
        "overhead": _QUANTITIES,
        "preemptionPolicy": st.sampled_from(["Never", "PreemptLowerPriority"]),
        "priority": st.integers(0, 5),
        "priorityClassName": st.just("mine"),
        "resourceClaims": st.lists(_ENTRIES, max_size=2, unique_by=lambda entry: entry["name"]),
        "schedulerName": st.sampled_from(["default-scheduler", "tensor-fusion-scheduler"]),
        "schedulingGates": st.just([{"name": ALLOCATION_GATE}]),
        "tolerations": _TOLERATIONS,
        "topologySpreadConstraints": st.just([{"whenUnsatisfiable": "DoNotSchedule"}]),
        "volumes": st.lists(_VOLUMES, max_size=2),
    },
)
_POD_STATUSES = st.fixed_dictionaries(
    {"phase": st.sampled_from(["Pending", "Running", "Failed"])},
    optional={
        "conditions": st.just(
            [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        ),
        "containerStatuses": st.just([{"name": "app", "resources": {"requests": {"cpu": "2"}}}]),
        "nominatedNodeName": st.just(NODE),
        "resourceClaimStatuses": st.just([{"name": CLAIM_REFERENCE, "resourceClaimName": "c1"}]),
    },
)


def _metadata(name: str, **more: Any) -> Object:
    return {"name": name, "uid": f"{name}-uid", "resourceVersion": "1", **more}


_TIMES = st.fixed_dictionaries(
    {},
    optional={
        "creationTimestamp": st.just("2026-01-02T03:04:05Z"),
        "deletionTimestamp": st.just("2026-01-02T03:05:05Z"),
    },
)


@st.composite
def pods(draw: st.DrawFn, *, admitted: bool = True) -> Object:
    """A pod with annotations as users write them, admitted already or not."""
    shape = {SHAPE: _SHAPE} if draw(st.booleans()) else {}
    metadata = _metadata(
        "p1",
        namespace="team",
        labels={"app": "a"},
        annotations={**draw(_ASKED), **shape},
        **draw(_TIMES),
    )
    pod = {"metadata": metadata, "spec": draw(_POD_SPECS)}
    if admitted:
        return {**pod, "status": draw(_POD_STATUSES)}
    if draw(st.booleans()):
        metadata["generateName"] = "p-"
        del metadata["name"]
    return pod


_SHAPE = (
    '{"metadata":{"labels":{"tensor-fusion.ai/derived-from":"base"}},"spec":{"devices":{"requests":'
    '[{"exactly":{"deviceClassName":"tensor-fusion.ai.dra-driver"},"name":"gpu-request"}]}}}'
)
_DEVICE = {"request": "gpu-request", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
_CLAIM_STATUSES = st.sampled_from(
    [
        {},
        {"allocation": {"devices": {"results": [_DEVICE]}}},
        {
            "allocation": {"devices": {"results": [_DEVICE]}, "nodeSelector": None},
            "reservedFor": [{"resource": "pods", "name": "p1", "uid": "p1-uid"}],
            "devices": [
                {
                    **{name: _DEVICE[name] for name in ("driver", "pool", "device")},
                    "conditions": [{"type": "attached", "status": "True"}],
                }
            ],
        },
    ]
)


@st.composite
def claims(draw: st.DrawFn) -> Object:
    """A claim of our class, of a pod or written by hand, allocated or not."""
    exactly: Object = {"deviceClassName": draw(st.sampled_from([DEVICE_CLASS, "other"]))}
    if draw(st.booleans()):
        amounts = {draw(st.sampled_from(["tflops", "virtual_tflops"])): "50"}
        exactly["capacity"] = {"requests": amounts}
    if draw(st.booleans()):
        exactly["tolerations"] = [{"key": OWNER_TAINT, "operator": "Exists"}]
    made: Object = {
        "metadata": _metadata("c1", namespace="team", annotations={}, labels={}, **draw(_TIMES)),
        "spec": {"devices": {"requests": [{"name": "gpu-request", "exactly": exactly}]}},
        "status": draw(_CLAIM_STATUSES),
    }
    metadata = made["metadata"]
    if draw(st.booleans()):
        metadata["labels"][POOL_LABEL] = draw(st.sampled_from(["shared", "nowhere"]))
    if draw(st.booleans()):
        metadata["annotations"] = {DECISION: "1000001", VOID: "3", POD_CLAIM_NAME: "x"}
        metadata["finalizers"] = [CLAIM_FINALIZER]
    if draw(st.booleans()):
        owner = {"kind": "Pod", "name": "p1", "uid": "p1-uid", "controller": True}
        metadata["ownerReferences"] = [owner]
    return made


@st.composite
def nodes(draw: st.DrawFn) -> Object:
    """A node of the pool ``shared``, or of none."""
    labels = {POOL_LABEL: "shared"} if draw(st.booleans()) else {}
    return {
        "metadata": _metadata(NODE, labels={**labels, "kubernetes.io/hostname": NODE}),
        "spec": {"unschedulable": draw(st.booleans()), "taints": []},
        "status": {
            "allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": draw(st.sampled_from(["True", "False"]))}],
        },
    }


FIXED: dict[str, Object] = {
    "gpupools": {
        "metadata": _metadata("shared", generation=2),
        "spec": {"schedulingConfigTemplate": "policy", "dedicated": True},
        "status": {"decisionLog": {"epoch": 1}},
    },
    "schedulingconfigtemplates": {
        "metadata": _metadata("policy", generation=3),
        "spec": {"dra": {"enable": True}},
    },
    "deviceclasses": {
        "metadata": _metadata(DEVICE_CLASS),
        "spec": {"selectors": [{"cel": {"expression": "true"}}]},
    },
    "resourceslices": {
        "metadata": _metadata("s1"),
        "spec": {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "capacity": {"virtual_tflops": {"value": "100"}}}],
        },
    },
    "resourceclaimtemplates": {
        "metadata": _metadata(
            "tensor-fusion-gpu-template",
            namespace="team",
            labels={_P + "resource-claim-template": "true"},
        ),
        "spec": {"metadata": {}, "spec": {"devices": {"requests": []}}},
    },
    "devicetaintrules": {
        "metadata": _metadata("rule"),
        "spec": {"taint": {"key": "a", "effect": "NoSchedule"}, "deviceSelector": {}},
    },
    "bindrequests": {
        "metadata": _metadata("p1", namespace="team"),
        "spec": {"podUID": "p1-uid"},
        "status": {"phase": "Binding"},
    },
    "podgroups": {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "metadata": _metadata("train", namespace="team"),
        "spec": {"minMember": 2, "queue": "default"},
        "status": {"phase": "Inqueue"},
    },
    "podgroups.scheduling.k8s.io": {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "metadata": _metadata("native", namespace="team"),
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    },
    "queues": {"metadata": _metadata("default"), "spec": {"weight": 1}},
    "priorityclasses": {"metadata": _metadata("high"), "value": 1000},
}
"""One of each kind that decisions read whole, by plural."""
