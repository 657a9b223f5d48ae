"""Consumers for readings: the owner of the streams creates them, other roles request them."""

import secrets
from typing import Any, Final

import msgspec
import structlog

from dray.bus.jetstream_api import NANO, ask, state_from, stream_info, understood
from dray.bus.ports import BusUnavailableError, StreamMissingError
from dray.bus.session import NoRespondersError, Session
from dray.messages.rpc import Reading, ReadingReply

_INACTIVE_S: Final = 60
"""The server deletes a consumer if nobody pulls from it for this time."""
_TIMEOUT_S: Final = 2.0


class Readings:
    """Creates or requests the consumers of one connection. Requests are sent to ``subject``; it is
    empty for the owner."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._waiting: dict[str, str] = {}
        """Why a consumer is missing, by stream."""

    @property
    def problem(self) -> str | None:
        """Why a reading waits, or None."""
        return next(iter(self._waiting.values()), None)

    async def open(self, session: Session, reading: Reading) -> ReadingReply:
        """A consumer and the stream's state. Raises StreamMissingError, BusUnavailableError."""
        opened = await (self._asked(session, reading) if self._subject else make(session, reading))
        if opened.is_missing:
            raise StreamMissingError(f"there is no stream {reading.stream}")
        if opened.error:
            raise BusUnavailableError(f"{reading.stream} can't be read: {opened.error}")
        return opened

    def wait(self, stream: str, why: str) -> None:
        """Note that a reading of the stream will be tried again."""
        if self._waiting.get(stream) != why:
            structlog.get_logger().warning("a reading waits", stream=stream, why=why)
        self._waiting[stream] = why

    def go_on(self, stream: str) -> None:
        """The reading has its consumer, or is over."""
        self._waiting.pop(stream, None)

    async def _asked(self, session: Session, reading: Reading) -> ReadingReply:
        question = msgspec.json.encode(reading)
        try:
            reply = await session.request(self._subject, question, timeout_s=_TIMEOUT_S)
        except NoRespondersError:
            raise BusUnavailableError(
                f"{reading.stream} can't be read: no claim-controller answers {self._subject}; "
                "one has to run, and nats-server with dray's accounts (deploy/nats/dray.conf)"
            ) from None
        with understood(self._subject):
            return msgspec.json.decode(reply, type=ReadingReply)


async def make(session: Session, reading: Reading) -> ReadingReply:
    """An ephemeral pull consumer with a name that nobody can guess.

    Raises BusUnavailableError, JetStreamRefusedError.
    """
    name = secrets.token_hex(16)
    config: dict[str, Any] = {
        "name": name,
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _INACTIVE_S * NANO,
        "filter_subjects": list(reading.subjects),
    }
    if reading.last_only:
        config["deliver_policy"] = "last_per_subject"
    else:
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": reading.start}
    body = {"stream_name": reading.stream, "config": config}
    try:
        answer = await ask(session, f"CONSUMER.CREATE.{reading.stream}.{name}", body)
        state = state_from(await stream_info(session, reading.stream))
    except StreamMissingError:
        return ReadingReply(is_missing=True)
    with understood(reading.stream):
        return ReadingReply(
            consumer=name,
            created=state.created,
            first_sequence=state.first_sequence,
            last_sequence=state.last_sequence,
            pending=int(answer.get("num_pending", 0)),
        )
