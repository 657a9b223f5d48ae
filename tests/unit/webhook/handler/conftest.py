"""A webhook that has read nothing, and one that is ready."""

import asyncio
import contextlib

import pytest
from tests.unit.webhook.handler.stack import POLICY, POOL, Stack

from dray.bus.topology import STREAMS
from dray.messages.facts import PolicyObserved, PoolObserved, TemplateObserved


@pytest.fixture
async def stack():
    stack = Stack()
    for spec in STREAMS:
        await stack.controller.ensure(spec)
    for run in (stack.cache.run, stack.backlog.run):
        stack.tasks.append(asyncio.create_task(run()))
    yield stack
    for task in stack.tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def ready(stack, template_of):
    await stack.publish(PoolObserved, pool=POOL)
    await stack.publish(PolicyObserved, policy=POLICY)
    base = template_of()
    await stack.publish(
        TemplateObserved,
        namespace=base.namespace,
        name=base.name,
        labels=base.labels,
        spec=base.spec,
    )
    await stack.sync()
    await stack.until(lambda: stack.cache.view.synced)
    return stack
