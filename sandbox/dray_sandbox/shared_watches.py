"""One shared watch per kind of object, for the node-agents of many nodes.

Each agent watches the objects of its node. Thousands of such watches would take most of the time
of a small API server, which compares every change with each watch.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import structlog

from dray.kube.ports import (
    Changed,
    Deleted,
    Kube,
    KubeError,
    Listed,
    Object,
    Resource,
    WatchEvent,
)
from dray.runtime.backoff import Backoff

_OF_NODE: Final = "spec.nodeName="


class SharedWatches:
    """The Kubernetes API of ``kube`` for many nodes. A watch of one node's objects, selected by
    ``spec.nodeName``, is served from one watch of all nodes' objects, which ``run`` follows."""

    def __init__(self, kube: Kube, *resources: Resource) -> None:
        """``resources``: the kinds whose watches are shared."""
        self._kube = kube
        self._kinds = {resource: _SharedWatch(kube, resource) for resource in resources}

    def __getattr__(self, name: str) -> Any:
        """All other methods are those of ``kube``."""
        return getattr(self._kube, name)

    def watch(
        self, resource: Resource, *namespace: str, **options: Any
    ) -> AsyncIterator[WatchEvent]:
        """Like ``Kube.watch``, but a shared watch raises no errors."""
        shared = self._kinds.get(resource)
        node = options.get("field_selector", "").removeprefix(_OF_NODE)
        is_of_node = node and not namespace and options == {"field_selector": _OF_NODE + node}
        if shared is None or not is_of_node:
            return self._kube.watch(resource, *namespace, **options)
        return shared.of_node(node)

    async def run(self) -> None:
        """Loop: follow the shared watches. Errors are logged, and the watch is retried."""
        async with asyncio.TaskGroup() as group:
            for shared in self._kinds.values():
                group.create_task(shared.run())


class _SharedWatch:
    """The objects of one kind, by node, and the queues of their watchers."""

    def __init__(self, kube: Kube, resource: Resource) -> None:
        self._kube = kube
        self._resource = resource
        self._by_node: dict[str, dict[str, Object]] = {}
        """Objects by UID, by node."""
        self._revision: int | None = None
        """The newest resourceVersion that was seen; None: nothing is listed yet."""
        self._queues: dict[str, list[asyncio.Queue[WatchEvent]]] = {}

    async def run(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._follow(backoff)
            except KubeError as error:
                structlog.get_logger().error(
                    "not watched, will retry", watch=self._resource.plural, error=str(error)
                )
            await backoff.pause()

    async def _follow(self, backoff: Backoff) -> None:
        async for event in self._kube.watch(self._resource):
            backoff.reset()
            match event:
                case Listed(objects, revision):
                    self._list(objects, revision)
                case Changed(obj) | Deleted(obj):
                    self._change(obj, event)

    async def of_node(self, node: str) -> AsyncIterator[WatchEvent]:
        """The events of one node's objects, beginning with the known objects."""
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        if self._revision is not None:
            queue.put_nowait(self._listed(node, self._revision))
        self._queues.setdefault(node, []).append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._queues[node].remove(queue)

    def _list(self, objects: tuple[Object, ...], revision: int) -> None:
        self._by_node = {}
        for obj in objects:
            self._keep(obj)
        self._revision = revision
        for node, queues in self._queues.items():
            for queue in queues:
                queue.put_nowait(self._listed(node, revision))

    def _change(self, obj: Object, event: Changed | Deleted) -> None:
        self._revision = int(obj["metadata"]["resourceVersion"])
        if isinstance(event, Changed):
            self._keep(obj)
        else:
            self._by_node.get(_node_of(obj), {}).pop(obj["metadata"]["uid"], None)
        for queue in self._queues.get(_node_of(obj), ()):
            queue.put_nowait(event)

    def _listed(self, node: str, revision: int) -> Listed:
        return Listed(tuple(self._by_node.get(node, {}).values()), revision)

    def _keep(self, obj: Object) -> None:
        if node := _node_of(obj):  # without a node, it has no watcher and would never be removed
            self._by_node.setdefault(node, {})[obj["metadata"]["uid"]] = obj


def _node_of(obj: Object) -> str:
    """The node of an object; empty if it has none, or no readable spec."""
    spec = obj.get("spec")
    return str(spec.get("nodeName") or "") if isinstance(spec, dict) else ""
