"""Waiting for what a control plane makes of an object."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from dray.kube.ports import Kube, Object, Resource


async def until(
    kube: Kube, resource: Resource, name: str, holds: Callable[[Object], Any]
) -> Object:
    """The object of the default namespace once it holds, within a minute."""
    deadline = time.monotonic() + 60
    while True:
        obj = await kube.get(resource, name, "default")
        if holds(obj):
            return obj
        assert time.monotonic() < deadline, obj
        await asyncio.sleep(0.05)
