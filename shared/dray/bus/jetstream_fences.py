"""Messages with a fence: how many of them may be in flight to a stream at once.

A stream with one replica accepts any number. With several replicas, the leading server refuses a
message while another message, whose fence has the same subject, is not stored by most servers
(error 10164). Such messages are sent one at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

from dray.api.errors import DrayError
from dray.bus.jetstream_api import TIMEOUT_S, FenceInUseError
from dray.bus.ports import BusUnavailableError, StaleSequenceError
from dray.messages.base import Outgoing

Store = Callable[[Outgoing], Awaitable[int]]
StoreAll = Callable[[Iterable[Sequence[Outgoing]]], Awaitable[list[int | DrayError]]]
_PAUSE_S: Final = 0.005
"""Pause between two attempts. Servers take some milliseconds to store a message."""


class FencedPublication:
    """Publishes messages with a fence, as ``Bus.publish`` and ``Bus.publish_all`` do."""

    def __init__(self, store: Store, store_all: StoreAll) -> None:
        self._store = store
        self._store_all = store_all
        self._one_at_a_time = False
        """Set after the first refusal."""
        self._turn = asyncio.Lock()

    async def publish(self, message: Outgoing) -> int:
        """See ``Bus.publish``."""
        async with self._turn:
            return await self._publish(message)

    async def publish_all(self, batches: Iterable[Sequence[Outgoing]]) -> list[int | DrayError]:
        """See ``Bus.publish_all``."""
        async with self._turn:
            if self._one_at_a_time:
                return await self._each(batches)
            sent: list[Outgoing] = []
            outcomes = await self._store_all(_remembered(batches, sent))
            refused = [at for at, one in enumerate(outcomes) if isinstance(one, FenceInUseError)]
            if refused:
                self._one_at_a_time = True
                again = await self._each([[sent[at] for at in refused]])
                for at, outcome in zip(refused, again, strict=True):
                    outcomes[at] = outcome
            return outcomes

    async def _each(self, batches: Iterable[Sequence[Outgoing]]) -> list[int | DrayError]:
        """Publish one message after another. An error that ends a batch is also the outcome of the
        rest of the batch."""
        outcomes: list[int | DrayError] = []
        for batch in batches:
            end: DrayError | None = None
            for message in batch:
                outcome = end or await self._outcome(message)
                if isinstance(outcome, BusUnavailableError | StaleSequenceError):
                    end = outcome
                outcomes.append(outcome)
            if end is not None:
                break
        return outcomes

    async def _outcome(self, message: Outgoing) -> int | DrayError:
        try:
            return await self._publish(message)
        except DrayError as error:
            return error

    async def _publish(self, message: Outgoing) -> int:
        """Publish, and repeat it while the server refuses it because another message is in flight.
        Nobody may be waiting for that other message any more."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    try:
                        return await self._store(message)
                    except FenceInUseError:
                        self._one_at_a_time = True
                        await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise BusUnavailableError(
                f"{message.subject} was not stored within {TIMEOUT_S:g} s: NATS has not stored "
                "another message of the same fence on most of its servers"
            ) from None


def _remembered(
    batches: Iterable[Sequence[Outgoing]], sent: list[Outgoing]
) -> Iterator[Sequence[Outgoing]]:
    for batch in batches:
        sent.extend(batch)
        yield batch
