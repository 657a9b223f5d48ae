"""Pod statuses that a kubelet writes. Pure; times are RFC 3339 texts."""

from collections.abc import Callable, Iterable
from typing import Any

from dray.api.pods import TERMINAL_PHASES
from dray.kube.ports import Object
from dray_sandbox.kubelet.claims import Prepared
from dray_sandbox.kubelet.device_health import DeviceKey

Status = dict[str, Any]


def rejected(pod: Object, reason: str, message: str, now: str) -> Status:
    """The status of a pod that admission rejected."""
    return {
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "startTime": _start(pod, now),
    }


def creating(pod: Object, host_ip: str, now: str) -> Status:
    """Containers wait for their devices."""
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    return {
        "phase": "Pending",
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "startTime": _start(pod, now),
        "conditions": _conditions(
            pod,
            now,
            PodReadyToStartContainers="",
            Initialized="True",
            ContainersReady="",
            Ready="",
        ),
        "containerStatuses": [_container(one, waiting, ready=False) for one in _containers(pod)],
    }


def running(pod: Object, pod_ip: str, now: str, restarts: int = 0) -> Status:
    """Every container runs and is ready."""
    state = {"running": {"startedAt": now}}
    return {
        "phase": "Running",
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "conditions": _conditions(
            pod,
            now,
            PodReadyToStartContainers="True",
            Initialized="True",
            ContainersReady="True",
            Ready="True",
        ),
        "containerStatuses": [
            _container(one, state, ready=True, uid=pod["metadata"]["uid"], restarts=restarts)
            for one in _containers(pod)
        ],
    }


def restarts_of(pod: Object) -> int:
    """How many times the pod's containers were restarted."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(one.get("restartCount") or 0) for one in statuses), default=0)


def succeeded(pod: Object, now: str) -> Status:
    """Every container ended with exit code 0."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    begun = {one["name"]: (one["state"].get("running") or {}).get("startedAt") for one in statuses}
    return {
        "phase": "Succeeded",
        "conditions": _conditions(
            pod,
            now,
            PodReadyToStartContainers="",
            Initialized="True",
            ContainersReady="",
            Ready="",
        ),
        "containerStatuses": [
            _container(
                one,
                {
                    "terminated": {
                        "exitCode": 0,
                        "reason": "Completed",
                        "startedAt": begun.get(one["name"]) or now,
                        "finishedAt": now,
                    }
                },
                ready=False,
                uid=pod["metadata"]["uid"],
            )
            for one in _containers(pod)
        ],
    }


def with_device_health(
    status: Status, pod: Object, prepared: Prepared, health: Callable[[DeviceKey], str]
) -> Status:
    """The status with ``allocatedResourcesStatus`` of each container that has devices (feature gate
    ResourceHealthStatus)."""
    specs = {one["name"]: one for one in _containers(pod)}
    return status | {
        "containerStatuses": [
            one | _allocated_resources(specs[one["name"]], prepared, health)
            for one in status["containerStatuses"]
        ]
    }


def _allocated_resources(
    container: Object, prepared: Prepared, health: Callable[[DeviceKey], str]
) -> Status:
    found: list[Status] = []
    for entry in (container.get("resources") or {}).get("claims") or ():
        request = entry.get("request") or ""
        devices = {
            device.resource_id: {
                "resourceID": device.resource_id,
                "health": health(device.key),
            }
            for device in prepared.get(entry["name"], ())
            if device.belongs_to(request)
        }
        if devices:
            name = f"claim:{entry['name']}" + (f"/{request}" if request else "")
            found.append({"name": name, "resources": list(devices.values())})
    return {"allocatedResourcesStatus": found} if found else {}


def is_terminal(pod: Object) -> bool:
    """Whether the pod has ended."""
    return (pod.get("status") or {}).get("phase") in TERMINAL_PHASES


def _start(pod: Object, now: str) -> str:
    return str((pod.get("status") or {}).get("startTime") or now)


def _containers(pod: Object) -> Iterable[Object]:
    return pod["spec"].get("containers") or ()


def _container(
    container: Object, state: Status, *, ready: bool, uid: str = "", restarts: int = 0
) -> Status:
    status: Status = {
        "name": container["name"],
        "image": container.get("image") or "",
        "imageID": "",
        "restartCount": restarts,
        "ready": ready,
        "started": ready,
        "state": state,
    }
    if uid:
        again = f"/{restarts}" if restarts else ""
        status["containerID"] = f"sandbox://{uid}/{container['name']}{again}"
    return status


def _conditions(pod: Object, now: str, **wanted: str) -> list[Status]:
    """The pod's conditions with ``wanted``; a transition time changes only with its status."""
    present = (pod.get("status") or {}).get("conditions") or ()
    conditions = {one["type"]: one for one in present}
    for kind, value in {"PodScheduled": "True", **wanted}.items():
        state = value or "False"
        if (conditions.get(kind) or {}).get("status") != state:
            conditions[kind] = {"type": kind, "status": state, "lastTransitionTime": now}
            if state == "False":
                conditions[kind]["reason"] = "ContainersNotReady"
    return list(conditions.values())
