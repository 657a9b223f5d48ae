"""Which pods hold GPUs that became unhealthy, or healthy again. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dray.api.devices import Device, DeviceId
from dray.api.health import is_unhealthy
from dray.api.names import DRIVER, HEALTH_TAINT
from dray.api.pods import Pod
from dray.kube.ports import NODES
from dray_claim_controller.cache.changes import Unread
from dray_claim_controller.cache.object_cache import ObjectCache

_AT_ONCE: Final = 500
"""Nodes that are looked at in one step."""
Held = tuple[DeviceId, str]
"""A device, and the UID of a pod that holds it."""


@dataclass(frozen=True, slots=True)
class HealthNews:
    """The health of a GPU changed under a pod."""

    pod: Pod
    reason: str
    """The event's reason: ``GPUUnhealthy`` or ``GPUHealthy``."""
    message: str

    @property
    def is_warning(self) -> bool:
        return self.reason == "GPUUnhealthy"


class DeviceHealth:
    """Follows the health of devices, as slices publish it, on the nodes that change."""

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache
        self._unread: Unread[str] | None = None
        self._known: dict[str, dict[Held, None]] = {}
        """By node, the unhealthy devices that pods hold."""

    def take(self) -> Iterator[HealthNews]:
        """What changed since the last call. The first one reports all that is unhealthy."""
        if self._unread is None:
            self._unread = Unread()
            self._unread.add(self._cache.plain[NODES.plural])
            self._cache.changed_nodes.subscribe(self._unread)
        for node in self._unread.take(_AT_ONCE):
            yield from self._look_at(node)

    def close(self) -> None:
        """Stop following nodes."""
        if self._unread is not None:
            self._cache.changed_nodes.unsubscribe(self._unread)

    def _look_at(self, node: str) -> Iterator[HealthNews]:
        known, now = self._known.pop(node, {}), dict[Held, None]()
        for device_id, device in self._unhealthy(node):
            for pod in self._holders(device_id):
                now[device_id, pod.uid] = None
                if (device_id, pod.uid) not in known:
                    yield HealthNews(pod, "GPUUnhealthy", _unhealthy_text(device, node))
        for device_id, uid in known:
            cached = self._cache.pods.get(uid)
            published = self._cache.devices.device(device_id)
            if cached is None or cached.pod is None or published is None:
                continue
            if not is_unhealthy(published):
                message = f"GPU {device_id.device} on node {node} is healthy again"
                yield HealthNews(cached.pod, "GPUHealthy", message)
        if now:
            self._known[node] = now

    def _unhealthy(self, node: str) -> Iterator[tuple[DeviceId, Device]]:
        for observed in self._cache.devices.slices_on(node):
            for device in observed.devices if observed.driver == DRIVER else ():
                if is_unhealthy(device):
                    yield DeviceId(DRIVER, observed.pool, device.name), device

    def _holders(self, device_id: DeviceId) -> Iterator[Pod]:
        for uid in self._cache.devices.holders.get(device_id, ()):
            for pod in self._cache.users.of(self._cache.claims[uid].claim):
                cached = self._cache.pods.get(pod.uid)
                if cached is not None and not cached.terminal:
                    yield pod


def _unhealthy_text(device: Device, node: str) -> str:
    why = next((taint.value for taint in device.taints if taint.key == HEALTH_TAINT), "")
    because = f": {why}" if why else ""
    return (
        f"GPU {device.name} on node {node} is unhealthy{because}. The pod keeps it, and no other "
        "pod gets it; delete the pod to have it placed elsewhere"
    )
