"""Terms follow each other until somebody says stop."""

import asyncio
from typing import Any, cast

import pytest

from dray.domain.errors import TemporaryError
from dray.runtime.clock import SystemClock
from dray_claim_controller.term import Term, lead


class FailingAtTheEnd:
    """A term one of whose loops fails just as it is cancelled."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop())

    async def _loop(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise TemporaryError("the stream is gone")


async def test_a_term_that_fails_while_it_is_stopped_is_not_followed_by_another() -> None:
    begun: list[Any] = []
    has_begun = asyncio.Event()

    def begin() -> Term:
        begun.append(FailingAtTheEnd())
        has_begun.set()
        return cast(Term, begun[-1])

    leading = asyncio.create_task(lead(begin, SystemClock()))
    await has_begun.wait()
    await asyncio.sleep(0)
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(leading, 5.0)

    assert len(begun) == 1
