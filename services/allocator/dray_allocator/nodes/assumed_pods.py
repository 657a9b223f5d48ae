"""Resources of assumed pods, until the observed sums of their nodes contain them."""

from functools import reduce

import msgspec

from dray.api.pods import HostPort


class AssumedResources(msgspec.Struct, frozen=True, gc=False):
    """The resources of assumed pods on one node."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    resources: dict[str, int] = msgspec.field(default_factory=dict)
    """All other resources, as in ``dray.api.pods.PodNeeds.resources``."""
    ports: tuple[HostPort, ...] = ()


NOTHING = AssumedResources()


class AssumedPods:
    """The assumed pods with their nodes and resources."""

    def __init__(self) -> None:
        self.version = 0
        """Increases with every change."""
        self._pods: dict[str, tuple[str, AssumedResources]] = {}
        self._nodes: dict[str, dict[str, AssumedResources]] = {}
        self._sums: dict[str, AssumedResources] = {}

    def on(self, node: str) -> AssumedResources:
        """The sum of the resources of assumed pods on a node."""
        return self._sums.get(node, NOTHING)

    def has(self, pod_uid: str) -> bool:
        """Whether a pod is assumed."""
        return pod_uid in self._pods

    def pods(self) -> tuple[str, ...]:
        """All assumed pods."""
        return tuple(self._pods)

    def pods_on(self, node: str) -> tuple[str, ...]:
        """The assumed pods on a node."""
        return tuple(self._nodes.get(node, ()))

    def set(self, pod_uid: str, node: str, held: AssumedResources | None) -> str:
        """Assume a pod, replace its resources, or forget it if ``held`` is None. Returns the node
        on which resources were freed, or an empty string."""
        before = self._pods.pop(pod_uid, None)
        if before is None:
            if held is not None:
                self.version += 1
                self._add(pod_uid, node, held)
            return ""
        after = None if held is None else (node, held)
        if before == after:
            self._pods[pod_uid] = before
            return ""
        self.version += 1
        there = self._nodes[before[0]]
        del there[pod_uid]
        self._sums[before[0]] = reduce(_plus, there.values(), NOTHING)
        if held is not None:
            self._add(pod_uid, node, held)
        return before[0]

    def _add(self, pod_uid: str, node: str, held: AssumedResources) -> None:
        self._pods[pod_uid] = node, held
        there = self._nodes.get(node)
        if there is None:
            there = self._nodes[node] = {}
        there[pod_uid] = held
        self._sums[node] = _plus(self.on(node), held)


def _plus(some: AssumedResources, more: AssumedResources) -> AssumedResources:
    return AssumedResources(
        some.cpu_milli + more.cpu_milli,
        some.memory_bytes + more.memory_bytes,
        some.pods + more.pods,
        _sums(some.resources, more.resources) if more.resources else some.resources,
        some.ports + more.ports,
    )


def _sums(some: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return some | {name: some.get(name, 0) + amount for name, amount in more.items()}
