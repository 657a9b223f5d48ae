"""Creates streams, and raises their replicas."""

from typing import Any, Final

import structlog

from dray.api.errors import PermanentError
from dray.bus.jetstream_api import (
    NO_CLUSTER,
    STREAM_NAME_IN_USE,
    TOO_MANY_CONSUMERS,
    WANTED,
    JetStreamRefusedError,
    TooFewServersError,
    ask,
    stream_config,
    stream_info,
    understood,
)
from dray.bus.ports import NoRoomError, StreamMissingError, StreamSpec
from dray.bus.session import Session
from dray.bus.topology import stream_of

REPLICAS: Final = 3
"""Replicas of a new stream if there are enough servers and no setting."""


class JetStreamStreams:
    """Creates streams and raises their replicas, over one session at a time.

    ``replicas``: the setting. None: existing streams keep theirs, new ones get REPLICAS.
    """

    def __init__(self, replicas: int | None = None) -> None:
        self._replicas = replicas
        self._short: dict[str, None] = {}
        """Streams whose missing replicas were logged."""

    async def ensure(self, session: Session, spec: StreamSpec) -> bool:
        """Create the stream if it is missing, or update its configuration to the spec. The number
        of replicas stays. True if it was created now."""
        wanted = stream_config(spec)
        try:
            found = _config(await stream_info(session, spec.name))
        except StreamMissingError:
            try:
                await self._create_as_allowed(session, spec.name, wanted)
            except JetStreamRefusedError as error:
                if error.code != STREAM_NAME_IN_USE:
                    raise
                return False
            return True
        if _differs(found, wanted):
            await _update(session, found, wanted)
        return False

    async def raise_replicas(self, session: Session, name: str) -> None:
        """See ``Bus.raise_replicas``."""
        try:
            found = _config(await stream_info(session, name))
        except StreamMissingError:
            return
        metadata = dict(found.get("metadata") or {})
        noted = metadata.pop(WANTED, "")
        wanted = self._replicas or (int(noted) if noted.isdigit() else 0)
        if int(found.get("num_replicas", 1)) >= wanted:
            return
        more = {**found, "num_replicas": wanted, "metadata": metadata}
        try:
            await ask(session, f"STREAM.UPDATE.{name}", more)
        except TooFewServersError as error:
            self._tell_short(name, wanted, error)
        else:
            self._short.pop(name, None)
            structlog.get_logger().info("replicas raised", stream=name, replicas=wanted)

    async def _create_as_allowed(self, session: Session, name: str, config: dict[str, Any]) -> None:
        try:
            await self._create(session, name, config)
        except JetStreamRefusedError as error:
            if error.code != TOO_MANY_CONSUMERS:
                raise
            # The account allows fewer. A stream without a limit then gets the account's limit.
            await self._create(session, name, {**config, "max_consumers": -1})

    async def _create(self, session: Session, name: str, config: dict[str, Any]) -> None:
        subject, replicas = f"STREAM.CREATE.{name}", self._replicas or REPLICAS
        if replicas == 1:
            await _ask_to_keep(session, subject, {**config, "num_replicas": 1})
            return
        try:
            await ask(session, subject, {**config, "num_replicas": replicas})
        except TooFewServersError as error:
            alone = {**config, "num_replicas": 1, "metadata": {WANTED: str(replicas)}}
            await _ask_to_keep(session, subject, alone)
            self._tell_short(name, replicas, error)

    def _tell_short(self, name: str, wanted: int, error: TooFewServersError) -> None:
        if name in self._short or (self._replicas is None and error.code == NO_CLUSTER):
            return  # A single server is a valid installation if no setting asks for more.
        self._short[name] = None
        structlog.get_logger().warning(
            "a stream has fewer replicas than wanted; they are raised once the servers allow it",
            stream=name,
            wanted=wanted,
            why=str(error),
        )


async def _update(session: Session, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    subject = f"STREAM.UPDATE.{wanted['name']}"
    try:
        await _ask_to_keep(session, subject, {**found, **wanted})
    except JetStreamRefusedError:
        # nats-server before 2.12.5 can't change the limit of consumers; its default is no limit.
        # An account may allow fewer.
        older = {**wanted, "max_consumers": found.get("max_consumers", -1)}
        if older == wanted:
            raise
        if _differs(found, older):
            await _ask_to_keep(session, subject, {**found, **older})


def _differs(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return any(found.get(key, _absent(value)) != value for key, value in wanted.items())


async def _ask_to_keep(session: Session, subject: str, config: dict[str, Any]) -> None:
    """Ask for a stream. Raises NoRoomError if no server can reserve the bytes: a cluster then
    answers that it has no suitable peers."""
    try:
        await ask(session, subject, config)
    except TooFewServersError as error:
        if int(config.get("max_bytes", -1)) > 0:
            raise NoRoomError(str(error)) from error
        raise


async def is_kept(session: Session, subject: str, *, is_owner: bool) -> bool:
    """Whether a stream stores the subject, even if no server accepts messages now. True for a role
    that may not read stream states: it only publishes."""
    if is_owner:
        answer = await ask(session, "STREAM.NAMES", {"subject": subject})
        return bool(answer.get("streams"))
    stream = stream_of(subject)
    if stream is None:
        return False
    try:
        await stream_info(session, stream)
    except StreamMissingError:
        return False
    except PermanentError:  # The role may not read the state.
        return True
    return True


def _config(info: dict[str, Any]) -> dict[str, Any]:
    with understood("a stream's state"):
        return dict(info["config"])


def _absent(value: object) -> object:
    # The server omits empty, false and zero values.
    return value if value in (0, "", False) else None
