"""What became of a pod after its devices were allocated: prepared, running, ended, node lost."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from dray.api.devices import Device
from dray.api.health import is_unhealthy
from dray.api.names import DRIVER, HEALTH_TAINT
from dray.kube.convert_claims import UNREADABLE
from dray.kube.convert_devices import slice_from
from dray.kube.pod_end import PodEnd, pod_end
from dray.kube.ports import EVENTS, NODES, SLICES, Kube, NotFoundError, Object, RefusedError
from dray_cli.pod_claims import devices_of

_FAILED_PREPARE: Final = "FailedPrepareDynamicResources"
_AWAY: Final = ("not registered", "connection refused", "connection reset")
"""In the kubelet's message while no plugin of the driver answers it."""
_STARTING: Final = ("ContainerCreating", "PodInitializing")
"""Reasons of containers that wait for nothing special."""


@dataclass(frozen=True, slots=True)
class FailedPrepare:
    """The kubelet's newest event that it could not prepare the pod's devices."""

    message: str
    times: int
    last: str
    """In RFC 3339; empty if the event has no time."""

    @property
    def is_agent_away(self) -> bool:
        """Whether the kubelet reaches no plugin of the driver: the node-agent does not run."""
        return any(text in self.message for text in _AWAY)


@dataclass(frozen=True, slots=True)
class PodLife:
    """How far a pod came that has, or had, its devices."""

    node: str = ""
    """Where it is bound; empty: nowhere yet."""
    node_problem: str = ""
    """Why its node can't run it; empty if it can, or this user may not read nodes."""
    failed_prepare: FailedPrepare | None = None
    """None once its containers start."""
    waiting: tuple[str, ...] = ()
    """Containers that wait for something else than devices: ``NAME REASON: MESSAGE``."""
    unhealthy: tuple[str, ...] = ()
    """Its devices that are unhealthy, each with the reason."""
    end: PodEnd | None = None

    def lines(self, phase: str) -> list[str]:
        """What happens now, for a person. ``phase``: the pod's."""
        if self.end is not None:
            return []
        if self.node_problem:
            return [f"Its node {self.node} {self.node_problem}"]
        unhealthy = [f"GPU {one}; no other pod gets it" for one in self.unhealthy]
        if not self.node or phase != "Pending":
            return unhealthy
        if (failed := self.failed_prepare) is not None:
            times = f"{failed.times} times" if failed.times > 1 else "once"
            last = f", last at {failed.last}" if failed.last else ""
            lines = [f"The kubelet of {self.node} failed to prepare them {times}{last}:"]
            lines.append(f"  {failed.message}")
            if failed.is_agent_away:
                lines.append(
                    f"The node-agent of {self.node} is away: the pod starts within seconds of its "
                    "return"
                )
            return lines
        if self.waiting:
            return [f"Container {one}" for one in self.waiting]
        return [f"It is bound to {self.node}, where the kubelet prepares them"]

    def as_json(self) -> dict[str, Any]:
        """The same as data."""
        failed = self.failed_prepare
        return {
            "node": self.node,
            "nodeProblem": self.node_problem,
            "failedPrepare": None
            if failed is None
            else {**asdict(failed), "nodeAgentAway": failed.is_agent_away},
            "unhealthyDevices": list(self.unhealthy),
            "waitingContainers": list(self.waiting),
            "ended": None if self.end is None else asdict(self.end),
        }


async def life_of(kube: Kube, pod: Object, claims: Iterable[Object] = ()) -> PodLife:
    """Read how far a pod with these ``claims`` came. What this user may not read is left out."""
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    status = pod.get("status") or {}
    end = pod_end(pod)
    if end is not None or not node:
        return PodLife(node, end=end)
    is_pending = status.get("phase", "Pending") == "Pending"
    waiting = _waiting(status)
    failed = None
    if is_pending and not waiting:
        failed = await _failed_prepare(kube, pod)
    unhealthy = await _unhealthy(kube, node, claims)
    return PodLife(node, await _node_problem(kube, node), failed, waiting, unhealthy)


async def _unhealthy(kube: Kube, node: str, claims: Iterable[Object]) -> tuple[str, ...]:
    held = {
        (result.get("pool"), result.get("device"))
        for claim in claims
        for result in devices_of(claim, DRIVER)
    }
    try:
        slices = await kube.list(SLICES, field_selector=f"spec.nodeName={node}") if held else None
    except (RefusedError, NotFoundError):
        return ()
    return tuple(
        f"{device.name} is unhealthy" + (f": {why}" if (why := _why(device)) else "")
        for obj in (slices.objects if slices is not None else ())
        for device in _devices(obj)
        if is_unhealthy(device) and (obj["spec"]["pool"]["name"], device.name) in held
    )


def _devices(obj: Object) -> tuple[Device, ...]:
    """The devices of a slice of dray's driver; of one that can't be read none."""
    try:
        return slice_from(obj).devices if obj["spec"].get("driver") == DRIVER else ()
    except UNREADABLE:
        return ()


def _why(device: Device) -> str:
    return next((taint.value for taint in device.taints if taint.key == HEALTH_TAINT), "")


def _waiting(status: Object) -> tuple[str, ...]:
    found = []
    for one in status.get("containerStatuses") or ():
        state = (one.get("state") or {}).get("waiting") or {}
        if (reason := state.get("reason")) and reason not in _STARTING:
            text = f": {state['message']}" if state.get("message") else ""
            found.append(f"{one.get('name')} waits: {reason}{text}")
    return tuple(found)


async def _failed_prepare(kube: Kube, pod: Object) -> FailedPrepare | None:
    metadata = pod["metadata"]
    try:
        events = await kube.list(
            EVENTS,
            metadata["namespace"],
            field_selector=f"involvedObject.uid={metadata['uid']},reason={_FAILED_PREPARE}",
        )
    except (RefusedError, NotFoundError):
        return None
    if not events.objects:
        return None
    newest = max(events.objects, key=_last)
    times = sum(_times(one) for one in events.objects)
    return FailedPrepare(str(newest.get("message") or ""), times, _last(newest))


def _last(event: Object) -> str:
    series = event.get("series") or {}
    times = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    return max(str(one or "") for one in times)


def _times(event: Object) -> int:
    return int((event.get("series") or {}).get("count") or event.get("count") or 1)


async def _node_problem(kube: Kube, name: str) -> str:
    try:
        node = await kube.get(NODES, name)
    except NotFoundError:
        return "is gone, and its devices with it: delete the pod if nothing else does"
    except RefusedError:
        return ""
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            since = (
                f" since {condition['lastTransitionTime']}"
                if "lastTransitionTime" in condition
                else ""
            )
            text = condition.get("message") or condition.get("reason") or "no reason is given"
            return f"is not ready{since}: {text}"
    return ""
