"""The pods of a node's MPS daemons, one for each device that programs share. Pure.

Each daemon has its own pod, so that it outlives the agent. It is never replaced while a claim is
prepared on its device, because that would end the claim's programs.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from dray.api.enforcement import MPS, Enforcement
from dray.api.names import API_GROUP, MPS_DAEMON, NAME_LABEL
from dray.api.pods import TERMINAL_PHASES
from dray.api.quantities import NANO, parse_quantity
from dray_node_agent.decisions.gpus import Gpu, GpuSnapshot, device_name
from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.decisions.mps_folders import folder_of, shared_memory_of

Object = dict[str, Any]

DEVICE_LABEL: Final = f"{API_GROUP}/mps-device"
_CONFIG_LABEL: Final = f"{API_GROUP}/mps-config"
"""A hash of the pod as it was created; a different hash means that the pod is out of date."""
_DIGITS: Final = 16
_MIB: Final = 2**20
_NOT_INSTALLED: Final = (
    "MPS daemons can't run here: no template of their pod is installed (chart: "
    "nodeAgent.mps.enabled; setting DRAY_NODE__MPS_TEMPLATE)"
)


class DaemonPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to write, and which devices must not be offered."""

    creates: tuple[Object, ...] = ()
    deletes: tuple[Object, ...] = ()
    problems: dict[str, str] = {}
    """By device: why no program can use its daemon now."""


def plan_daemons(
    snapshot: GpuSnapshot,
    state: NodeState,
    *,
    template: Object | None,
    namespace: str,
    pods: Sequence[Mapping[str, Any]],
    in_use: Collection[str],
) -> DaemonPlan:
    """The next writes. ``pods``: of this node; ``in_use``: devices with prepared claims;
    ``state.uid``: of the Node, which owns the pods."""
    wanted: dict[str, Object] = {}
    problems: dict[str, str] = {}
    if state.enforcement.enforcer == MPS:
        for gpu in shared_devices(snapshot):
            device = device_name(gpu.uuid)
            problems[device] = _NOT_INSTALLED
            if template is not None:
                wanted[device] = daemon_pod(template, gpu, state, namespace)
    creates, deletes = dict(wanted), []
    for pod in sorted(_daemons(pods, namespace), key=lambda one: str(one["metadata"]["name"])):
        labels = pod["metadata"]["labels"]
        device = str(labels.get(DEVICE_LABEL))
        is_ending = "deletionTimestamp" in pod["metadata"]
        creates.pop(device, None)  # the name is taken
        if is_ending:
            continue
        if _has_ended(pod) or (device not in in_use and _is_stale(pod, wanted.get(device))):
            deletes.append(dict(pod))
        elif device in problems and _answers(pod):
            del problems[device]
    for device in set(problems) & set(wanted):
        pod_name = f"{namespace}/{wanted[device]['metadata']['name']}"
        problems[device] = f"its MPS daemon does not answer: pod {pod_name} is not ready"
    return DaemonPlan(creates=tuple(creates.values()), deletes=tuple(deletes), problems=problems)


def shared_devices(snapshot: GpuSnapshot) -> list[Gpu]:
    """Cards without MIG instances, and MIG instances: the devices that CUDA programs run on."""
    divided = {gpu.parent_uuid for gpu in snapshot.gpus}
    return [gpu for gpu in snapshot.gpus if gpu.uuid not in divided]


def daemon_pod(template: Object, gpu: Gpu, state: NodeState, namespace: str) -> Object:
    """The pod of a device's daemon: the template with name, node, device, limits and folders.

    The template's containers mount the volumes ``mps`` (pipes and log) and ``shm``.
    """
    device = device_name(gpu.uuid)
    spec = msgspec.json.decode(msgspec.json.encode(template.get("spec") or {}), type=Object)
    spec["nodeName"] = state.name
    spec["volumes"] = [
        *(spec.get("volumes") or ()),
        _folder("mps", folder_of(device)),
        _folder("shm", shared_memory_of(device)),
    ]
    for container in spec.get("containers") or ():
        container["env"] = [*(container.get("env") or ()), *_environment(gpu, state.enforcement)]
    digest = hashlib.sha256(msgspec.json.encode(spec, order="sorted")).hexdigest()[:_DIGITS]
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{MPS_DAEMON}-{device}",
            "namespace": namespace,
            "annotations": dict(metadata.get("annotations") or {}),
            "labels": {
                **(metadata.get("labels") or {}),
                NAME_LABEL: MPS_DAEMON,
                DEVICE_LABEL: device,
                _CONFIG_LABEL: digest,
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": state.name,
                    "uid": state.uid,
                    "controller": True,  # so that `kubectl drain` evicts the pod
                }
            ],
        },
        "spec": spec,
    }


def _environment(gpu: Gpu, enforcement: Enforcement) -> list[Object]:
    """The variables that the daemon reads when it starts; its limits apply to every client."""
    env = {"CUDA_VISIBLE_DEVICES": gpu.uuid, "NVIDIA_VISIBLE_DEVICES": gpu.uuid}
    if enforcement.mps_threads_percent:
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(enforcement.mps_threads_percent)
    if enforcement.mps_memory:
        mebibytes = parse_quantity(enforcement.mps_memory).nano // NANO // _MIB
        env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={max(mebibytes, 1)}M"
    return [{"name": name, "value": value} for name, value in env.items()]


def _folder(name: str, path: str) -> Object:
    return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def _daemons(pods: Sequence[Mapping[str, Any]], namespace: str) -> list[Mapping[str, Any]]:
    return [
        pod
        for pod in pods
        if pod["metadata"].get("namespace") == namespace
        and (pod["metadata"].get("labels") or {}).get(NAME_LABEL) == MPS_DAEMON
    ]


def _is_stale(pod: Mapping[str, Any], wanted: Object | None) -> bool:
    if wanted is None:
        return True
    labels = pod["metadata"]["labels"]
    return bool(labels.get(_CONFIG_LABEL) != wanted["metadata"]["labels"][_CONFIG_LABEL])


def _has_ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in TERMINAL_PHASES


def _answers(pod: Mapping[str, Any]) -> bool:
    status = pod.get("status") or {}
    return status.get("phase") == "Running" and any(
        one.get("type") == "Ready" and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )
