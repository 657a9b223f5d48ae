"""The cluster of ``benchmarks.leader`` on a real API server: ``python -m benchmarks.leader --api
real``.

etcd, kube-apiserver, kube-scheduler and kube-controller-manager, with 1 000 nodes and 20 000 pods.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

import click

from benchmarks.leader_cluster import ClusterSize, cluster_objects
from benchmarks.node_fleet import run_limited
from dray.kube.api import connect
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NAMESPACES,
    NODES,
    PODS,
    Kube,
    Object,
    Resource,
)
from dray_sandbox.access import make_credentials
from dray_sandbox.controlplane.build import build
from dray_sandbox.controlplane.launch import start_control_plane
from dray_sandbox.objects import Installer, documents
from dray_sandbox.paths import checkout
from dray_sandbox.processes import Runner

REAL: Final = ClusterSize(nodes=1_000, gpus=8, pods=20_000, pools=200, namespaces=100)
REAL_SMALL: Final = ClusterSize(nodes=40, gpus=8, pods=400, pools=8, namespaces=4)
_OWNED: Final = (CLAIMS, BIND_REQUESTS)
"""Kinds whose objects name the UID of their pod."""
_WITH_STATUS: Final = (PODS, CLAIMS, NODES, BIND_REQUESTS)


class RealCluster:
    """A real control plane with the cluster, and changes of its pods and nodes."""

    def __init__(self, kube: Kube, kubeconfig: Path, size: ClusterSize) -> None:
        self.kubeconfig = kubeconfig
        self._kube = kube
        self._size = size
        self._changes: asyncio.Task[None] | None = None

    async def change(self, rate_per_s: int) -> None:
        """Change this many objects a second from now on; 0: none."""
        if self._changes is not None:
            self._changes.cancel()
            await asyncio.wait([self._changes])
        self._changes = None if rate_per_s == 0 else asyncio.create_task(self._go_on(rate_per_s))

    async def fill(self) -> None:
        """Create all objects."""
        by_pod: dict[tuple[str, str], list[tuple[Resource, Object]]] = {}
        others: list[tuple[Resource, Object]] = []
        for resource, obj in cluster_objects(self._size):
            if resource is PODS or resource in _OWNED:
                by_pod.setdefault(_pod_of(resource, obj), []).append((resource, obj))
            else:
                others.append((resource, obj))
        teams = (f"team-{number}" for number in range(self._size.namespaces))
        for name in ("dray-system", *teams):
            await self._kube.create(NAMESPACES, {"metadata": {"name": name}})

        async def write_other(one: tuple[Resource, Object]) -> None:
            await self._write(*one)

        await run_limited(write_other, others)
        done = itertools.count(1)

        async def write(objects: Iterable[tuple[Resource, Object]]) -> None:
            await self._write_pod(dict(objects))
            if (number := next(done)) % 1000 == 0:
                click.echo(f"{number} of {self._size.pods} pods", err=True)

        await run_limited(write, by_pod.values())

    async def _write_pod(self, objects: dict[Resource, Object]) -> None:
        """Create a pod, then its claim and BindRequest, which name its UID."""
        pod = objects.pop(PODS)
        # A reference to a template would make Kubernetes create another claim.
        reference = pod["spec"]["resourceClaims"][0]
        (status,) = pod["status"].pop("resourceClaimStatuses")
        del reference["resourceClaimTemplateName"]
        reference["resourceClaimName"] = status["resourceClaimName"]
        made = await self._write(PODS, pod)
        for resource, obj in objects.items():
            text = json.dumps(obj).replace(pod["metadata"]["uid"], made["metadata"]["uid"])
            await self._write(resource, json.loads(text))

    async def _write(self, resource: Resource, obj: Object) -> Object:
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        kept = ("name", "labels", "annotations", "finalizers", "ownerReferences")
        bare = {name: metadata[name] for name in kept if name in metadata}
        rest = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
        made = await self._kube.create(resource, {"metadata": bare, **rest}, namespace)
        if resource in _WITH_STATUS and "status" in obj:
            patch = {"status": obj["status"]}
            name = metadata["name"]
            return await self._kube.patch(resource, name, patch, namespace, subresource="status")
        return made

    async def _go_on(self, rate_per_s: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                group.create_task(self._change_one(number))
                await asyncio.sleep(1 / rate_per_s)

    async def _change_one(self, number: int) -> None:
        """Change an annotation of a dray pod, of a foreign pod, or of a node."""
        patch = {"metadata": {"annotations": {"example.com/beat": str(number)}}}
        if number % 10 < 8:
            kind = "foreign" if number % 2 else "own"
            pod = number % self._size.own_pods
            namespace = f"team-{pod % self._size.namespaces}"
            await self._kube.patch(PODS, f"{kind}-{pod}", patch, namespace)
        else:
            await self._kube.patch(NODES, f"node-{number % self._size.nodes}", patch)


def _pod_of(resource: Resource, obj: Object) -> tuple[str, str]:
    metadata = obj["metadata"]
    owners = metadata.get("ownerReferences") or ()
    name = metadata["name"] if resource is PODS else owners[0]["name"]
    return metadata["namespace"], name


@contextlib.asynccontextmanager
async def real_cluster(runner: Runner, folder: Path, *, small: bool) -> AsyncIterator[RealCluster]:
    """The cluster, filled; the runner ends its programs."""
    binary = await build(lambda line: click.echo(line, err=True))
    server = await start_control_plane(
        runner, binary, folder / "kubernetes", make_credentials(folder / "access"), context="bench"
    )
    crds = documents(checkout() / "deploy" / "helm" / "dray" / "crds")
    async with Installer(server) as installer:
        await installer.apply(crds)
        await installer.wait_until_served(crds)
    kube = await connect(str(server.admin_kubeconfig), user_agent="bench")
    cluster = RealCluster(kube, server.admin_kubeconfig, REAL_SMALL if small else REAL)
    try:
        await cluster.fill()
        yield cluster
    finally:
        await cluster.change(0)
        await kube.close()
