"""What happened to a pod after the allocation: prepared, running, ended, node lost."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from dray.api.device_links import LINK_NAMES, common_links, links_of
from dray.api.devices import Device
from dray.api.health import is_unhealthy
from dray.api.names import DRIVER, HEALTH_TAINT
from dray.kube.convert_claims import UNREADABLE
from dray.kube.convert_devices import slice_from
from dray.kube.node_problem import node_problem
from dray.kube.pod_end import PodEnd, pod_end
from dray.kube.ports import NODES, SLICES, Kube, NotFoundError, Object, RefusedError
from dray_cli.pod_claims import devices_of
from dray_cli.pod_events import event_of

_FAILED_PREPARE: Final = "FailedPrepareDynamicResources"
_NO_ANSWER: Final = (
    "not registered",
    "connection refused",
    "connection reset",
    "error while dialing",
    "deadline exceeded",
)
"""Parts of the kubelet's message, in lower case, if the driver's plugin does not answer it."""
_PHRASES: Final = dict(
    zip(LINK_NAMES, ("by NVLink", "on one NUMA node", "under one PCIe root"), strict=True)
)
_UNCONNECTED: Final = "The {} GPUs have no NVLink, no NUMA node and no PCIe root in common"
_STARTING: Final = ("ContainerCreating", "PodInitializing")
"""Waiting reasons of containers that are only starting."""


@dataclass(frozen=True, slots=True)
class FailedPrepare:
    """The kubelet's newest event about its failure to prepare the pod's devices."""

    message: str
    times: int
    last: str
    """In RFC 3339; empty if the event has no time."""

    @property
    def is_agent_away(self) -> bool:
        """Whether the node-agent, the driver's plugin, did not answer."""
        message = self.message.lower().replace("_", " ")
        return any(text in message for text in _NO_ANSWER)


@dataclass(frozen=True, slots=True)
class PodLife:
    """The state of a pod that has, or had, its devices."""

    node: str = ""
    """The node that it is bound to; empty: none yet."""
    node_problem: str = ""
    """Why its node can't run it; empty if it can, or this user may not read nodes."""
    failed_prepare: FailedPrepare | None = None
    """None once its containers start."""
    waiting: tuple[str, ...] = ()
    """Containers that wait for something other than devices: ``NAME REASON: MESSAGE``."""
    unhealthy: tuple[str, ...] = ()
    """Its devices that are unhealthy, each with the reason."""
    gpus: int = 0
    """How many of the devices that it holds its node publishes."""
    links: tuple[str, ...] | None = None
    """How its devices are connected; None: it holds one, or their attributes don't say."""
    end: PodEnd | None = None

    def lines(self, phase: str) -> list[str]:
        """What happens now, as text for people. ``phase``: the pod's phase."""
        if self.end is not None:
            return []
        if self.node_problem:
            return [f"Its node {self.node} {self.node_problem}"]
        unhealthy = [f"GPU {one}; no other pod gets it" for one in self.unhealthy]
        devices = [*self._connected(), *unhealthy]
        if not self.node or phase != "Pending":
            return devices
        return devices + self._preparing()

    def _connected(self) -> list[str]:
        if self.links is None:
            return []
        how = ", ".join(_PHRASES[link] for link in self.links)
        return [
            f"The {self.gpus} GPUs are connected {how}" if how else _UNCONNECTED.format(self.gpus)
        ]

    def _preparing(self) -> list[str]:
        if (failed := self.failed_prepare) is not None:
            times = f"{failed.times} times" if failed.times > 1 else "once"
            last = f", last at {failed.last}" if failed.last else ""
            lines = [f"The kubelet of {self.node} failed to prepare them {times}{last}:"]
            lines.append(f"  {failed.message}")
            if failed.is_agent_away:
                lines.append(
                    f"The node-agent of {self.node} does not answer: the pod starts within seconds "
                    "of its return"
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
            "connectedBy": None if self.links is None else list(self.links),
            "waitingContainers": list(self.waiting),
            "ended": None if self.end is None else asdict(self.end),
        }


async def life_of(kube: Kube, pod: Object, claims: Iterable[Object] = ()) -> PodLife:
    """Read the state of a pod with these ``claims``. What this user may not read is left out."""
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    status = pod.get("status") or {}
    end = pod_end(pod)
    if end is not None or not node:
        return PodLife(node, end=end)
    is_pending = status.get("phase", "Pending") == "Pending"
    waiting = _waiting(status)
    failed = None
    if is_pending and not waiting:
        event = await event_of(kube, pod, _FAILED_PREPARE)
        failed = None if event is None else FailedPrepare(event.message, event.times, event.last)
    held = await _held(kube, node, claims)
    unhealthy = tuple(
        f"{device.name} on {node} is unhealthy" + (f": {why}" if (why := _why(device)) else "")
        for device in held
        if is_unhealthy(device)
    )
    problem = await _node_problem(kube, node)
    return PodLife(node, problem, failed, waiting, unhealthy, len(held), _links(held))


async def _held(kube: Kube, node: str, claims: Iterable[Object]) -> list[Device]:
    """The devices of the node that the claims hold; none if this user may not list slices."""
    held = {
        (result.get("pool"), result.get("device"))
        for claim in claims
        for result in devices_of(claim, DRIVER)
    }
    try:
        slices = await kube.list(SLICES, field_selector=f"spec.nodeName={node}") if held else None
    except (RefusedError, NotFoundError):
        return []
    return [
        device
        for obj in (slices.objects if slices is not None else ())
        for device in _devices(obj)
        if (obj["spec"]["pool"]["name"], device.name) in held
    ]


def _links(devices: list[Device]) -> tuple[str, ...] | None:
    links = [links_of(DRIVER, device.attributes) for device in devices]
    if len(links) < 2 or not any(value is not None for one in links for value in one):
        return None
    return common_links(links)


def _devices(obj: Object) -> tuple[Device, ...]:
    """The devices of a slice; empty if it is not of dray's driver, or can't be read."""
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


async def _node_problem(kube: Kube, name: str) -> str:
    try:
        problem = node_problem(await kube.get(NODES, name))
    except NotFoundError:
        problem = node_problem(None)
    except RefusedError:
        return ""
    return "" if problem is None else problem[1]
