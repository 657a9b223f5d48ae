"""Reads facts into a view, and looks up what an answer depends on."""

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from dray.api import json_codec
from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.bus.topology import FACTS_STREAM
from dray.messages.base import Delivered, UndecodableMessageError, decode, subject_prefix
from dray.messages.facts import Fact
from dray.messages.rpc import Lookup, LookupReply
from dray.runtime.backoff import Backoff
from dray_webhook.decisions.view import READ_FACTS, View

_TYPES: dict[str, type[Fact]] = {subject_prefix(fact): fact for fact in READ_FACTS}
_REPLY = msgspec.json.Decoder(LookupReply)
_SUBJECTS = tuple(subject for prefix in _TYPES for subject in (prefix, f"{prefix}.>"))


_MAX_RETRY_DELAY_S = 2.0
"""Longest pause between attempts to read a missing stream; no pod is admitted meanwhile."""


class FactsCache:
    """The latest complete view. It stays in use while the bus is unavailable."""

    def __init__(self, bus: Bus) -> None:
        self.view = View()
        """Empty until all facts were read once."""
        self.facts_created = ""
        """When the stream of the view's facts was created."""
        self._bus = bus

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
        """Apply facts until cancelled. Read a lost stream again; the old view stays meanwhile."""
        backoff, waits = Backoff(most_s=_MAX_RETRY_DELAY_S), False
        while True:
            try:
                await self._follow(backoff)
            except StreamMissingError as error:
                if self.view.synced:
                    structlog.get_logger().warning("the facts stream is lost", error=str(error))
                elif not waits:
                    structlog.get_logger().info(
                        "waiting for a claim-controller to publish the first facts"
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
        async for delivered in self._bus.read(FACTS_STREAM, subjects=_SUBJECTS):
            _apply(fresh, delivered)
            fresh.position = delivered.sequence
            fresh.caught_up = delivered.pending == 0
            if fresh.synced and (fresh is self.view or delivered.pending == 0):
                self.view, self.facts_created = fresh, state.created
                backoff.reset()

    async def look_up(
        self, unresolved: Sequence[Lookup], *, timeout_s: float
    ) -> dict[Lookup, LookupReply]:
        """The state of each look-up's object in the API server; ``error`` if there is no answer in
        time."""
        replies = await asyncio.gather(*(self._ask(lookup, timeout_s) for lookup in unresolved))
        return dict(zip(unresolved, replies, strict=True))

    async def _ask(self, lookup: Lookup, timeout_s: float) -> LookupReply:
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


def _apply(view: View, delivered: Delivered) -> None:
    message = _TYPES.get(".".join(delivered.subject.split(".")[:4]))
    if message is None:
        return
    try:
        view.apply(decode(delivered, message))
    except UndecodableMessageError as error:
        structlog.get_logger().error("skipped an undecodable fact", error=str(error))
