"""Watches every kind that a run is judged by."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NODES,
    PODS,
    POOLS,
    SLICES,
    TEMPLATES,
    Kube,
    Listed,
    Resource,
)
from dray_sandbox.faults.history import StackHistory

WATCHED = (NODES, POOLS, SLICES, TEMPLATES, CLAIMS, PODS, BIND_REQUESTS)


@asynccontextmanager
async def watching(kube: Kube) -> AsyncIterator[StackHistory]:
    """The history from now on; complete up to now when the block begins."""
    history = StackHistory()
    told = {resource: asyncio.Event() for resource in WATCHED}

    async def follow(resource: Resource) -> None:
        async for event in kube.watch(resource):
            history.tell(resource, event)
            told[resource].set()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(follow(resource)) for resource in WATCHED]
        try:
            for event in told.values():
                await event.wait()
            yield history
        finally:
            for task in tasks:
                task.cancel()


async def listed(kube: Kube, *further: Resource) -> dict[Resource, Listed]:
    """Everything there is, and of ``further`` kinds, too. Raises KubeUnavailableError."""
    return {resource: await kube.list(resource) for resource in (*WATCHED, *further)}
