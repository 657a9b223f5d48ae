"""Leases: one message per key that lives as long as the lease, replaced by compare-and-set."""

import asyncio
import math
from collections.abc import Sequence
from typing import Final

from dray.api.errors import DrayError
from dray.bus.connection import Connection
from dray.bus.jetstream_api import ask, last_message, store, stored_sequence, understood
from dray.bus.ports import BusUnavailableError, StaleSequenceError, StreamMissingError
from dray.bus.session import NoRespondersError
from dray.bus.topology import LEASE_PREFIX, LEASES_STREAM
from dray.messages.base import Outgoing

_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_TIMEOUT_S: Final = 2.0


class Leases:
    """Takes, renews and releases leases. It remembers those that this process wrote."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._mine: dict[str, int] = {}
        """Sequence of the last message written, per key and holder."""

    async def acquire(self, key: str, holder: str, ttl_s: float) -> bool:
        """Take or renew; False while another holds it. Time-to-live is in whole seconds. Raises
        BusUnavailableError also while the stream of leases is missing."""
        try:
            return await self._take(key, holder, ttl_s)
        except StreamMissingError as error:
            raise BusUnavailableError(str(error)) from error

    async def acquire_all(
        self, keys: Sequence[str], holder: str, ttl_s: float
    ) -> list[bool | DrayError]:
        """Take or renew leases; their messages are sent at once. Returns the outcome or the error
        of each."""
        try:
            session = self._connection.session()
        except BusUnavailableError as error:
            return [error for _ in keys]
        messages = [
            _message(key, holder.encode(), self._mine.get(f"{key} {holder}", 0), ttl_s)
            for key in keys
        ]
        outcomes = await session.request_all(
            [messages], stored_sequence, most=len(keys), timeout_s=_TIMEOUT_S
        )
        return await asyncio.gather(
            *(
                self._outcome(key, holder, ttl_s, outcome)
                for key, outcome in zip(keys, outcomes, strict=True)
            )
        )

    async def _outcome(
        self, key: str, holder: str, ttl_s: float, stored: int | DrayError | NoRespondersError
    ) -> bool | DrayError:
        """Whether the lease is taken, given the outcome of its message."""
        if isinstance(stored, StaleSequenceError):
            try:
                return await self._take_again(key, holder, ttl_s)
            except DrayError as error:
                return error
        if isinstance(stored, NoRespondersError):
            return self._nobody_listens()
        if isinstance(stored, DrayError):
            return stored
        self._mine[f"{key} {holder}"] = stored
        return True

    async def release(self, key: str, holder: str) -> None:
        """Release the lease if ``holder`` has it."""
        try:
            sequence, owner = await self._current(key)
        except StreamMissingError:
            return
        self._mine.pop(f"{key} {holder}", None)
        if owner == holder:
            try:
                await self._write(key, b"", sequence, ttl_s=1.0)
            except (StaleSequenceError, BusUnavailableError):
                return  # It lapses.

    async def held(self, prefix: str) -> tuple[str, ...]:
        """Keys that have a message. A released lease keeps its message for a second."""
        body = {"subjects_filter": f"{LEASE_PREFIX}{prefix}>"}
        try:
            info = await ask(
                self._connection.session(),
                f"STREAM.INFO.{LEASES_STREAM}",
                body,
                timeout_s=_TIMEOUT_S,
            )
        except StreamMissingError:
            return ()
        with understood(LEASES_STREAM):
            subjects = dict(info["state"].get("subjects") or {})
        return tuple(sorted(subject.removeprefix(LEASE_PREFIX) for subject in subjects))

    async def _take(self, key: str, holder: str, ttl_s: float) -> bool:
        mine = f"{key} {holder}"
        expected = self._mine.get(mine, 0)
        try:
            self._mine[mine] = await self._write(key, holder.encode(), expected, ttl_s)
        except StaleSequenceError:
            return await self._take_again(key, holder, ttl_s)
        return True

    async def _take_again(self, key: str, holder: str, ttl_s: float) -> bool:
        """Take a lease that was written or has lapsed since this process last wrote it."""
        mine = f"{key} {holder}"
        self._mine.pop(mine, None)
        sequence, owner = await self._current(key)
        if owner not in ("", holder):
            return False
        try:
            self._mine[mine] = await self._write(key, holder.encode(), sequence, ttl_s)
        except StaleSequenceError:
            return False
        return True

    async def _write(self, key: str, value: bytes, expected: int, ttl_s: float) -> int:
        message = _message(key, value, expected, ttl_s)
        try:
            return await store(self._connection.session(), message, timeout_s=_TIMEOUT_S)
        except NoRespondersError:
            raise self._nobody_listens() from None

    def _nobody_listens(self) -> BusUnavailableError:
        self._mine.clear()
        return BusUnavailableError(
            f"no stream {LEASES_STREAM} takes leases: the claim-controller's leader makes it, "
            "and a server of NATS has to lead it"
        )

    async def _current(self, key: str) -> tuple[int, str]:
        """Sequence and holder; (0, "") if there is no holder."""
        message = await last_message(
            self._connection.session(), LEASES_STREAM, LEASE_PREFIX + key, timeout_s=_TIMEOUT_S
        )
        if message is None:
            return 0, ""
        return message.sequence, message.payload.decode(errors="replace")


def _message(key: str, value: bytes, expected: int, ttl_s: float) -> Outgoing:
    headers = {_EXPECTED: str(expected), "Nats-TTL": f"{max(1, math.ceil(ttl_s))}s"}
    return Outgoing(LEASE_PREFIX + key, value, headers)
