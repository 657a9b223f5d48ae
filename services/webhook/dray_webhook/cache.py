"""Facts in, a view out, and the one question before a negative answer."""

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.bus.topology import FACTS_STREAM
from dray.domain import json_codec
from dray.messages.base import Delivered, UndecodableMessageError, decode, subject_prefix
from dray.messages.facts import Fact
from dray.messages.rpc import Lookup, LookupReply
from dray.runtime.backoff import Backoff
from dray_webhook.view import DEFAULT_POOL, READ_FACTS, View

_TYPES: dict[str, type[Fact]] = {subject_prefix(fact): fact for fact in READ_FACTS}
_REPLY = msgspec.json.Decoder(LookupReply)
SUBJECTS = tuple(subject for prefix in _TYPES for subject in (prefix, f"{prefix}.>"))


LONGEST_WAIT_S = 2.0
"""Between attempts to read a stream that isn't there: nothing is admitted meanwhile."""


class Cache:
    """The newest whole view. It outlives the bus: answers go on from memory."""

    def __init__(self, bus: Bus) -> None:
        self.view = View()
        """What to answer from; empty until everything that exists was read once."""
        self.facts_created = ""
        """When the stream that the view was folded from was made."""
        self._bus = bus
        self._changed = asyncio.Event()

    @property
    def problem(self) -> str | None:
        """Why nothing can be answered yet, or None."""
        if self.view.synced:
            return None
        return (
            "no pools, policies and templates have been read from the bus yet; "
            "are the bus and the claim-controller running?"
        )

    async def run(self) -> None:
        """Fold facts for ever. A lost stream is read anew; the old view serves meanwhile."""
        backoff, waits = Backoff(most_s=LONGEST_WAIT_S), False
        while True:
            try:
                await self._follow(backoff)
            except StreamMissingError as error:
                if self.view.synced:
                    structlog.get_logger().warning("the facts are lost", error=str(error))
                elif not waits:
                    structlog.get_logger().info(
                        "waits for a claim-controller to publish the first facts"
                    )
                waits = True
            except BusUnavailableError as error:
                structlog.get_logger().warning("facts can't be read", error=str(error))
            await backoff.pause()

    async def _follow(self, backoff: Backoff) -> None:
        fresh = View()
        state = await self._bus.state(FACTS_STREAM)
        if state is None:
            raise StreamMissingError(f"the stream {FACTS_STREAM} does not exist")
        async for delivered in self._bus.read(FACTS_STREAM, subjects=SUBJECTS):
            _fold(fresh, delivered)
            fresh.position = delivered.sequence
            fresh.caught_up = delivered.pending == 0
            if fresh.synced and (fresh is self.view or delivered.pending == 0):
                self.view, self.facts_created = fresh, state.created
                backoff.reset()
            self._changed.set()

    async def look_up(
        self, doubts: Sequence[Lookup], *, timeout_s: float
    ) -> dict[Lookup, LookupReply]:
        """What the API server holds of ``doubts``; ``error`` where that can't be told in time."""
        replies = await asyncio.gather(*(self._ask(doubt, timeout_s) for doubt in doubts))
        return dict(zip(doubts, replies, strict=True))

    async def _ask(self, lookup: Lookup, timeout_s: float) -> LookupReply:
        if lookup == DEFAULT_POOL:
            await self._default_pool(timeout_s)
            return LookupReply()
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._bus.request(
                    Lookup.SUBJECT, msgspec.json.encode(lookup), timeout_s=timeout_s
                )
            return json_codec.decode(answer, _REPLY)
        except (BusUnavailableError, TimeoutError):
            return LookupReply(
                error=f"the claim-controller did not answer in {timeout_s * 1000:.0f} ms"
            )
        except msgspec.MsgspecError as error:
            return LookupReply(error=f"the claim-controller's answer can't be read: {error}")

    async def _default_pool(self, timeout_s: float) -> None:
        """Wait until the facts name one default pool; no question could ask for it."""
        try:
            async with asyncio.timeout(timeout_s):
                while sum(pool.default for pool in self.view.pools.values()) != 1:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return


def _fold(view: View, delivered: Delivered) -> None:
    message = _TYPES.get(".".join(delivered.subject.split(".")[:4]))
    if message is None:
        return
    try:
        view.apply(decode(delivered, message))
    except UndecodableMessageError as error:
        structlog.get_logger().error("a fact was left out", error=str(error))
