"""Term after term: what was lost ends one, and the next begins by reading what is there."""

import asyncio
from collections.abc import Callable

import structlog

from dray.domain.errors import DrayError
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.observe.publisher import SupersededError
from dray_claim_controller.term import Term


async def lead(begin: Callable[[], Term], clock: Clock) -> None:
    """Lead until cancelled, or until another leads by the facts: then the Lease is
    looked at before the next term, which would end the other's."""
    backoff = Backoff(0.1, 5.0)
    while True:
        term = begin()
        started_s = clock.monotonic_s()
        superseded = False
        try:
            # In a task of its own: a failed task group leaves its task marked as cancelled.
            await asyncio.create_task(term.run(), name="term")
        except* SupersededError as group:
            superseded = True
            structlog.get_logger().warning("the term ended", error=str(group.exceptions[0]))
        except* DrayError as group:
            for error in group.exceptions:
                structlog.get_logger().warning("the term ended", error=str(error))
        # A task group whose members fail while it is cancelled raises their errors alone.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        if superseded:
            return
        if clock.monotonic_s() - started_s > 30:
            backoff.reset()
        await clock.sleep(backoff.next_s())
