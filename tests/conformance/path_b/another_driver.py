"""Another driver with a card on dray's node; its kubelet plugin does nothing with it in time."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conformance.path_b.cluster import Cluster

from dray.kube.ports import CLASSES, NODES, SLICES, TEMPLATES, Object, Resource
from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.kubelet.preparer import ClaimRef
from dray_node_agent.kubelet.server import KubeletServer
from dray_node_agent.kubelet.sockets import endpoint_socket, registration_socket

FOREIGN = "nic.dray.dev"


class Nic:
    """What the node does for another driver's claims: nothing, in time."""

    async def prepare(self, refs: Sequence[ClaimRef]) -> dict[str, PreparedClaim | str]:
        return {
            ref.uid: PreparedClaim(
                uid=ref.uid,
                namespace=ref.namespace,
                name=ref.name,
                phase="PrepareCompleted",
                devices=(),
                cdi={},
            )
            for ref in refs
        }

    async def unprepare(self, refs: Sequence[ClaimRef]) -> dict[str, str]:
        return {ref.uid: "" for ref in refs}

    async def drain(self) -> None:
        """Nothing is ever in flight."""


@asynccontextmanager
async def another_driver(cluster: Cluster) -> AsyncIterator[str]:
    """One card on sim-1; the name of a template that asks for it."""
    folder: Path = cluster.stack.nodes_directory / "sim-1"
    preparer: Any = Nic()
    server = KubeletServer(
        preparer,
        driver=FOREIGN,
        endpoint=endpoint_socket(folder / "p", FOREIGN, "1"),
        registration=registration_socket(folder / "r", FOREIGN, "1"),
    )
    selectors = [{"cel": {"expression": f'device.driver == "{FOREIGN}"'}}]
    request = {"name": "nic", "exactly": {"deviceClassName": FOREIGN}}
    made: list[tuple[Resource, Object]] = [
        (CLASSES, {"metadata": {"name": FOREIGN}, "spec": {"selectors": selectors}}),
        (
            TEMPLATES,
            {
                "metadata": {"name": "nic", "namespace": "default"},
                "spec": {"spec": {"devices": {"requests": [request]}}},
            },
        ),
        (SLICES, await _slice(cluster)),
    ]
    async with AsyncExitStack() as undo:
        await server.start()
        undo.push_async_callback(server.stop, 1.0)
        for resource, obj in made:
            await cluster.kube.create(resource, obj)
            namespace = obj["metadata"].get("namespace", "")
            undo.push_async_callback(
                cluster.kube.delete, resource, obj["metadata"]["name"], namespace
            )
        yield "nic"
        await cluster.clean_up()


async def _slice(cluster: Cluster) -> Object:
    node = await cluster.kube.get(NODES, "sim-1")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "sim-1", "uid": node["metadata"]["uid"]}
    return {
        "metadata": {"name": "sim-1-nic", "ownerReferences": [owner]},
        "spec": {
            "driver": FOREIGN,
            "nodeName": "sim-1",
            "pool": {"name": "sim-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "nic-0"}],
        },
    }
