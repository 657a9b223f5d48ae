"""JetStream's JSON API: requests, and its errors translated to the port's."""

import base64
import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from dray.api.errors import DrayError, PermanentError
from dray.bus.bulk_parser import Headers
from dray.bus.ports import (
    BusUnavailableError,
    NoRoomError,
    StaleSequenceError,
    StoreUse,
    StreamMissingError,
    StreamSpec,
    StreamState,
)
from dray.bus.session import NoRespondersError, Session
from dray.messages.base import Delivered, Outgoing

TIMEOUT_S: Final = 5.0
NANO: Final = 1_000_000_000

_MAX_CONSUMERS: Final = 100_000
"""Per stream. Each node-agent has one. Without a limit in the stream, nats-server 2.15 allows
1,000."""
_STREAM_NOT_FOUND: Final = 10059
STREAM_NAME_IN_USE: Final = 10058
TOO_MANY_CONSUMERS: Final = 10026
"""Error code: the limit is higher than the account allows."""
_NO_MESSAGE: Final = 10037
_NO_ROOM: Final = 10047
WANTED: Final = "dray-replicas"
"""Metadata key with the wanted number of replicas, on a stream that was created with fewer. Without
this key and without a setting, an administrator chooses the replicas."""
NO_CLUSTER: Final = 10074
_TOO_FEW_SERVERS: Final = (10005, 10023, NO_CLUSTER)
"""Error codes: no suitable peers, insufficient resources, replicas without a cluster."""
_FENCE_IN_USE: Final = 10164
"""Error code: a message with the same fence is in flight. The fence itself was not checked."""
_WRONG_LAST: Final = (10070, 10071, _FENCE_IN_USE)
"""Error codes: the last message id or the last sequence differs from the expected one."""
_SERVER_FAULTS: Final = 500
"""From this code on the server is at fault: a full disk, a failed store, or it is starting."""


async def ask(
    session: Session, subject: str, body: object = None, *, timeout_s: float = TIMEOUT_S
) -> dict[str, Any]:
    """Send one API request; return the answer.

    Raises the errors of ``error_of``, and BusUnavailableError, also if the server runs without
    JetStream.
    """
    payload = b"" if body is None else msgspec.json.encode(body)
    try:
        reply = await session.request(session.api + subject, payload, timeout_s=timeout_s)
    except NoRespondersError:
        raise BusUnavailableError(
            f"JetStream does not answer {subject}: is it enabled on the server?"
        ) from None
    return _answer(reply, subject)


async def store(session: Session, message: Outgoing, *, timeout_s: float) -> int:
    """Publish into a stream; return the message's sequence. Raises NoRespondersError if no stream
    accepts it now: there is none for the subject, or no server leads it."""
    reply = await session.request(
        message.subject, message.payload, timeout_s=timeout_s, headers=message.headers
    )
    return stored_sequence(reply, message.subject)


class _Stored(msgspec.Struct):
    """JetStream's answer to a message."""

    seq: int = 0
    error: dict[str, Any] | None = None


_STORED: Final = msgspec.json.Decoder(_Stored)


def stored_sequence(reply: bytes, subject: str) -> int:
    """The sequence that JetStream gave a message of the subject. Raises the errors of
    ``error_of``, and BusUnavailableError for an invalid answer: the outcome is unknown."""
    try:
        answer = _STORED.decode(reply)
    except msgspec.MsgspecError as error:
        raise _nonsense(subject, error) from error
    if answer.error:
        with understood(subject):
            problem = error_of(answer.error, subject)
        raise problem
    if answer.seq < 1:
        raise _nonsense(subject, ValueError(f"no sequence in {reply[:200]!r}"))
    return answer.seq


def _answer(data: bytes, what: str) -> dict[str, Any]:
    with understood(what):
        answer = msgspec.json.decode(data, type=dict[str, Any])
        problem = answer.get("error")
        error = error_of(problem, what) if problem else None
    if error is not None:
        raise error
    return answer


@contextlib.contextmanager
def understood(what: str) -> Iterator[None]:
    """Raises BusUnavailableError for an invalid answer: the outcome is unknown."""
    try:
        yield
    except (msgspec.MsgspecError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _nonsense(what, error) from error


def _nonsense(what: str, error: Exception) -> BusUnavailableError:
    return BusUnavailableError(f"NATS answered {what} with nonsense: {error!r}")


class FenceInUseError(StaleSequenceError):
    """The message was not stored: another message is in flight whose fence has the same subject."""


class JetStreamRefusedError(PermanentError):
    """JetStream refused a request for a reason for which the port has no error."""

    def __init__(self, what: str, code: int, description: str) -> None:
        super().__init__(f"JetStream refused {what}: {description} (error {code})")
        self.code = code


class TooFewServersError(BusUnavailableError):
    """The servers can't provide the storage, or the number of replicas."""

    def __init__(self, what: str, code: int, description: str) -> None:
        super().__init__(f"{what}: {description}")
        self.code = code


def error_of(problem: dict[str, Any], what: str) -> DrayError:
    """JetStream's error as the port's."""
    code = int(problem.get("err_code") or 0)
    description = str(problem.get("description") or problem)
    if code in _WRONG_LAST:
        kind = FenceInUseError if code == _FENCE_IN_USE else StaleSequenceError
        return kind(
            f"{what}: {description}: another writer appended; read the new records and decide again"
        )
    if code == _STREAM_NOT_FOUND:
        return StreamMissingError(f"{what}: {description}")
    if code == _NO_ROOM:
        return NoRoomError(f"{what}: {description}")
    if code in _TOO_FEW_SERVERS:
        return TooFewServersError(what, code, description)
    if int(problem.get("code") or 0) >= _SERVER_FAULTS:
        return BusUnavailableError(f"{what}: {description}")
    return JetStreamRefusedError(what, code, description)


def stream_config(spec: StreamSpec) -> dict[str, Any]:
    """A stream's configuration without replicas: file storage, and only the limits of the spec."""
    return {
        "name": spec.name,
        "description": spec.purpose,
        "subjects": list(spec.subjects),
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "max_age": int((spec.max_age_s or 0) * NANO),
        "max_bytes": spec.max_bytes or -1,
        "max_msgs_per_subject": 1 if spec.last_per_subject else -1,
        "max_consumers": _MAX_CONSUMERS,
        "duplicate_window": int(spec.duplicate_window_s * NANO),
        "allow_msg_ttl": spec.message_ttl,
        "allow_direct": True,
    }


async def stream_info(session: Session, name: str) -> dict[str, Any]:
    """Raises StreamMissingError."""
    return await ask(session, f"STREAM.INFO.{name}")


async def list_streams(session: Session) -> list[StreamState]:
    """All streams of the account. The server returns them in pages."""
    found: list[StreamState] = []
    offset = 0
    while True:
        answer = await ask(session, "STREAM.LIST", {"offset": offset})
        with understood("STREAM.LIST"):
            some = list(answer.get("streams") or ())
            offset += int(answer.get("limit", len(some)))
            total = int(answer.get("total", 0))
        found += map(state_from, some)
        if not some or offset >= total:
            return found


async def last_message(
    session: Session, stream: str, subject: str, *, timeout_s: float = TIMEOUT_S
) -> Delivered | None:
    """The newest message of a subject, or None. Raises StreamMissingError."""
    body = {"last_by_subj": subject}
    try:
        answer = await ask(session, f"STREAM.MSG.GET.{stream}", body, timeout_s=timeout_s)
    except JetStreamRefusedError as error:
        if error.code == _NO_MESSAGE:
            return None
        raise
    with understood(subject):
        message = answer["message"]
        return Delivered(
            subject=message["subject"],
            payload=base64.b64decode(message.get("data", "")),
            headers=Headers(base64.b64decode(message.get("hdrs", ""))),
            stream=stream,
            sequence=int(message["seq"]),
            time_unix_s=datetime.fromisoformat(message["time"]).timestamp(),
        )


def state_from(info: dict[str, Any]) -> StreamState:
    """The port's view of a stream's info."""
    with understood("a stream's state"):
        state = info["state"]
        name = info["config"]["name"]
        cluster = info.get("cluster") or {}
        others = cluster.get("replicas") or ()
        noted = (info["config"].get("metadata") or {}).get(WANTED, "")
        return StreamState(
            name,
            int(state["first_seq"]),
            int(state["last_seq"]),
            info["created"],
            replicas=int(info["config"].get("num_replicas", 1)),
            lagging=tuple(
                one["name"] for one in others if one.get("offline") or not one.get("current")
            ),
            cluster=str(cluster.get("name") or ""),
            wanted=int(noted) if noted.isdigit() else 0,
            bytes=int(state.get("bytes", 0)),
        )


def store_use_from(info: dict[str, Any]) -> StoreUse:
    """The port's view of an account's info."""
    with understood("the account's state"):
        limit_bytes = int((info.get("limits") or {}).get("max_storage", -1))
        return StoreUse(int(info["storage"]), limit_bytes if limit_bytes > 0 else None)
