"""What decided pods take of their nodes, as long as the published sums lack it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dray.domain.pods import HostPort


@dataclass(frozen=True, slots=True)
class Held:
    """What is held on one node."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    resources: dict[str, int] = field(default_factory=dict)
    """Every other resource, as in ``dray.domain.pods.PodNeeds.resources``."""
    ports: tuple[HostPort, ...] = ()


NOTHING = Held()


class Holds:
    """Holds by pod. Setting a pod's hold again replaces it."""

    def __init__(self) -> None:
        self.version = 0
        """Moves with every change."""
        self._pods: dict[str, tuple[str, Held]] = {}
        self._nodes: dict[str, dict[str, Held]] = {}
        self._sums: dict[str, Held] = {}

    def on(self, node: str) -> Held:
        """The sum held on a node."""
        return self._sums.get(node, NOTHING)

    def has(self, pod_uid: str) -> bool:
        """Whether something is held for a pod."""
        return pod_uid in self._pods

    def pods(self) -> tuple[str, ...]:
        """Every pod that holds something."""
        return tuple(self._pods)

    def pods_on(self, node: str) -> tuple[str, ...]:
        """The pods that hold something on a node."""
        return tuple(self._nodes.get(node, ()))

    def set(self, pod_uid: str, node: str, held: Held | None) -> str:
        """Replace a pod's hold; the node on which something was freed, or empty."""
        before = self._pods.pop(pod_uid, None)
        after = None if held is None else (node, held)
        if after is not None:
            self._pods[pod_uid] = after
        if before == after:
            return ""
        self.version += 1
        if before is not None:
            del self._nodes[before[0]][pod_uid]
            self._sum(before[0])
        if held is not None:
            self._nodes.setdefault(node, {})[pod_uid] = held
            self._sums[node] = _together((self.on(node), held))
        return "" if before is None else before[0]

    def _sum(self, node: str) -> None:
        self._sums[node] = _together(self._nodes[node].values())


def _together(holds: Iterable[Held]) -> Held:
    cpu_milli = memory_bytes = pods = 0
    resources: dict[str, int] = {}
    ports: tuple[HostPort, ...] = ()
    for held in holds:
        cpu_milli += held.cpu_milli
        memory_bytes += held.memory_bytes
        pods += held.pods
        ports += held.ports
        for name, amount in held.resources.items():
            resources[name] = resources.get(name, 0) + amount
    return Held(cpu_milli, memory_bytes, pods, resources, ports)
