"""The real bus: NATS with JetStream, through nats-py."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import nats.errors
import structlog
from nats.aio.msg import Msg

from dray.api.errors import DrayError
from dray.bus.connection import BusCredentials, Connection
from dray.bus.jetstream_api import (
    TIMEOUT_S,
    JetStreamRefusedError,
    ask,
    last_message,
    list_streams,
    state_from,
    store,
    store_use_from,
    stored_sequence,
    stream_info,
)
from dray.bus.jetstream_consumer import consume
from dray.bus.jetstream_fences import FencedPublication
from dray.bus.jetstream_leases import Leases
from dray.bus.jetstream_reader import JetStreamReader
from dray.bus.jetstream_readings import Readings, make
from dray.bus.jetstream_streams import JetStreamStreams, is_kept
from dray.bus.ports import (
    BusUnavailableError,
    Delivery,
    Fence,
    Handler,
    Request,
    StoreUse,
    StreamMissingError,
    StreamSpec,
    StreamState,
)
from dray.bus.session import NoRespondersError, Session, unsubscribe
from dray.bus.topology import (
    API_OF_OTHERS,
    API_OF_OWNER,
    CLAIM_CONTROLLER,
    LEASE_PREFIX,
    LEASES_STREAM,
    NODE_AGENT,
    account_of,
    reading_subject,
)
from dray.messages.base import Delivered, Outgoing
from dray.messages.rpc import Reading, ReadingReply

_CLOSE_BUDGET_S: Final = 10.0
_MOST_DUE: Final = 1024
"""Most messages in flight to the server at once. If it syncs each, it stores 5 000 a second."""
_LEASES_S: Final = 2.0
"""Time limit for reading all leases."""
_MESSAGE_ID: Final = "Nats-Msg-Id"
_EXPECTED: Final = "Nats-Expected-Last-Sequence"
_AFTER: Final = "Nats-Expected-Last-Msg-Id"
_EXPECTED_OF: Final = "Nats-Expected-Last-Subject-Sequence"
_OF_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
_REQUEST_INFO: Final = "Nats-Request-Info"
"""Header with the requester's identity. The server sets it if the import shares the identity.
Clients can't set it."""


async def connect(
    servers: str,
    *,
    name: str,
    role: str = CLAIM_CONTROLLER,
    user: str = "",
    password: str = "",
    node: str = "",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    replicas: int | None = None,
    wait_s: float | None = 3.0,
) -> "JetStreamBus":
    """Connect to the bus, and keep reconnecting for ever.

    ``servers`` are separated by commas. ``role``: a role of the topology; the default owns the
    streams.
    A node-agent names its ``node`` and the ``token_file`` of its service account instead of a user.
    ``ca_file``: authorities of the servers' certificates, instead of the system's.
    ``replicas``: number of replicas of each stream; None: existing streams keep theirs.
    Returns once connected, or after ``wait_s``. If it is not connected then, ``connected`` is
    False, calls raise BusUnavailableError, and readers wait. With ``wait_s`` 0 it returns at once;
    with None it does not connect until ``start`` is called.
    """
    is_owner = role == CLAIM_CONTROLLER
    connection = Connection(
        servers,
        BusCredentials(user, password, node, token_file, ca_file),
        name=name,
        api=API_OF_OWNER if is_owner else API_OF_OTHERS,
    )
    if wait_s is not None:
        connection.start()
    if wait_s:
        try:
            async with asyncio.timeout(wait_s):
                await connection.next_session()
        except TimeoutError:
            structlog.get_logger().warning("NATS can't be reached yet", why=connection.problem)
    return JetStreamBus(connection, "" if is_owner else reading_subject(role, node), replicas)


class JetStreamBus:
    """``Bus`` over one connection."""

    def __init__(
        self, connection: Connection, readings: str = "", replicas: int | None = None
    ) -> None:
        self._connection = connection
        self._leases = Leases(connection)
        self._is_owner = not readings
        self._readings = Readings(readings)
        self._streams = JetStreamStreams(replicas)
        self._fenced_publication = FencedPublication(self._store, self._store_all)

    @property
    def connected(self) -> bool:
        """Whether a connection is up."""
        return self._connection.connected

    @property
    def problem(self) -> str | None:
        """See ``Bus.problem``."""
        return self._connection.problem or self._readings.problem

    @property
    def max_payload_bytes(self) -> int | None:
        """See ``Bus.max_payload_bytes``."""
        return self._connection.max_payload_bytes

    async def ensure(self, stream: StreamSpec) -> bool:
        """See ``Bus.ensure``. A stream with another configuration is updated to the spec."""
        return await self._streams.ensure(self._connection.session(), stream)

    async def raise_replicas(self, stream: str) -> None:
        """See ``Bus.raise_replicas``."""
        await self._streams.raise_replicas(self._connection.session(), stream)

    async def delete_stream(self, name: str) -> None:
        """See ``Bus.delete_stream``."""
        try:
            await ask(self._connection.session(), f"STREAM.DELETE.{name}")
        except StreamMissingError:
            return

    async def streams(self, prefix: str) -> tuple[StreamState, ...]:
        """See ``Bus.streams``."""
        found = await list_streams(self._connection.session())
        found.sort(key=lambda state: state.name)
        return tuple(state for state in found if state.name.startswith(prefix))

    async def purge(self, stream: str, below: int) -> None:
        """See ``Bus.purge``."""
        try:
            await ask(self._connection.session(), f"STREAM.PURGE.{stream}", {"seq": below})
        except StreamMissingError:
            return

    async def store_use(self) -> StoreUse:
        """See ``Bus.store_use``."""
        return store_use_from(await ask(self._connection.session(), "INFO"))

    async def state(self, stream: str) -> StreamState | None:
        """See ``Bus.state``."""
        try:
            return state_from(await stream_info(self._connection.session(), stream))
        except StreamMissingError:
            return None

    async def publish(self, message: Outgoing, *, fence: Fence | None = None) -> int:
        """See ``Bus.publish``."""
        if fence is None:
            return await self._store(message)
        return await self._fenced_publication.publish(_fenced(message, fence))

    async def publish_all(
        self, batches: Iterable[Sequence[Outgoing]], *, fence: Fence | None = None
    ) -> list[int | DrayError]:
        """See ``Bus.publish_all``."""
        if fence is None:
            return await self._store_all(batches)
        fenced = ([_fenced(message, fence) for message in batch] for batch in batches)
        return await self._fenced_publication.publish_all(fenced)

    async def append(
        self, message: Outgoing, *, expected_last: int, identity: str = "", after: str = ""
    ) -> int:
        """See ``Bus.append``."""
        # The message's own id would let the server drop a record as a duplicate.
        fence = {_MESSAGE_ID: identity, _EXPECTED: str(expected_last), _AFTER: after}
        headers = {key: value for key, value in message.headers.items() if key != _MESSAGE_ID}
        headers.update({key: value for key, value in fence.items() if value})
        return await self._store(Outgoing(message.subject, message.payload, headers))

    async def last(self, stream: str, subject: str) -> Delivered | None:
        """See ``Bus.last``. The owner asks the stream's leader, and so sees every stored write."""
        if self._is_owner:
            return await last_message(self._connection.session(), stream, subject)
        return await JetStreamReader(self._connection, self._readings, stream, (subject,), 1).last()

    async def open_reading(self, reading: Reading) -> ReadingReply:
        """See ``Bus.open_reading``."""
        try:
            return await make(self._connection.session(), reading)
        except JetStreamRefusedError as error:
            return ReadingReply(error=str(error))

    def read(
        self, stream: str, *, subjects: Sequence[str] = (), start: int = 1
    ) -> AsyncIterator[Delivered]:
        """See ``Bus.read``."""
        return JetStreamReader(self._connection, self._readings, stream, subjects, start).messages()

    def read_batches(
        self, stream: str, *, subjects: Sequence[str] = (), start: int = 1
    ) -> AsyncIterator[Sequence[Delivered]]:
        """See ``Bus.read_batches``."""
        return JetStreamReader(self._connection, self._readings, stream, subjects, start).batches()

    def consume(
        self, stream: str, *, durable: str, subjects: Sequence[str] = ()
    ) -> AsyncIterator[Delivery]:
        """See ``Bus.consume``. Raises StreamMissingError when the stream is missing."""
        return consume(self._connection, stream, durable, subjects, self.publish)

    async def notify(self, subject: str, payload: bytes) -> None:
        """See ``Bus.notify``."""
        await self._connection.session().send(subject, payload)

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """See ``Bus.request``."""
        try:
            return await self._connection.session().request(subject, payload, timeout_s=timeout_s)
        except NoRespondersError:
            raise BusUnavailableError(f"{subject} has no responder now") from None

    async def serve(self, subject: str, handler: Handler, *, queue: str) -> None:
        """See ``Bus.serve``: runs until the bus closes or the task is cancelled."""
        async with asyncio.TaskGroup() as answering:

            async def on_question(question: Msg) -> None:
                answering.create_task(_answer(question, handler))

            while not self._connection.closed:
                try:
                    session = await self._connection.next_session()
                    subscription = await session.subscribe(subject, on_question, queue=queue)
                except BusUnavailableError:
                    await asyncio.sleep(0)
                    continue
                try:
                    await session.closed.wait()
                finally:
                    if not session.closed.is_set():
                        await unsubscribe(subscription)

    async def acquire(self, key: str, holder: str, *, ttl_s: float) -> bool:
        """See ``Bus.acquire``; ``ttl_s`` is rounded up to whole seconds."""
        return await self._leases.acquire(key, holder, ttl_s)

    async def acquire_all(
        self, keys: Sequence[str], holder: str, *, ttl_s: float
    ) -> list[bool | DrayError]:
        """See ``Bus.acquire_all``."""
        return await self._leases.acquire_all(keys, holder, ttl_s)

    async def release(self, key: str, holder: str) -> None:
        """See ``Bus.release``."""
        await self._leases.release(key, holder)

    async def lease_holders(self, prefix: str) -> dict[str, str]:
        """See ``Bus.lease_holders``."""
        subjects = (f"{LEASE_PREFIX}{prefix}>",)
        reader = JetStreamReader(self._connection, self._readings, LEASES_STREAM, subjects, 1)
        try:
            async with asyncio.timeout(_LEASES_S):
                messages = await reader.stored()
        except StreamMissingError:
            return {}
        except TimeoutError:
            raise BusUnavailableError(
                f"the leases below {prefix} were not read within {_LEASES_S:g} s"
            ) from None
        holders = {
            one.subject.removeprefix(LEASE_PREFIX): one.payload.decode(errors="replace")
            for one in messages
        }
        return {key: holder for key, holder in holders.items() if holder}

    async def leases(self, prefix: str) -> tuple[str, ...]:
        """See ``Bus.leases``."""
        return await self._leases.held(prefix)

    async def _store(self, message: Outgoing) -> int:
        session = self._connection.session()
        try:
            return await store(session, message, timeout_s=TIMEOUT_S)
        except NoRespondersError:
            raise await self._not_taken(session, message.subject) from None

    async def _store_all(self, batches: Iterable[Sequence[Outgoing]]) -> list[int | DrayError]:
        try:
            session = self._connection.session()
        except BusUnavailableError as error:
            return [error for _ in next(iter(batches), ())]
        outcomes = await session.request_all(
            batches, stored_sequence, most=_MOST_DUE, timeout_s=TIMEOUT_S
        )
        found: list[int | DrayError] = []
        for one in outcomes:
            if isinstance(one, NoRespondersError):
                found.append(await self._not_taken(session, str(one)))
            else:
                found.append(one)
        return found

    async def _not_taken(self, session: Session, subject: str) -> DrayError:
        """Why no stream accepts messages of a subject."""
        # No server answers while a cluster elects the stream's leader, either. If that were taken
        # for a lost log, an allocator would wait for the next epoch for ever.
        try:
            if await is_kept(session, subject, is_owner=self._is_owner):
                return BusUnavailableError(f"no NATS server accepts {subject} just now")
        except DrayError as error:
            return error
        return StreamMissingError(
            f"no stream keeps {subject}: it was never created, or it was lost"
        )

    def start(self) -> None:
        """Begin to connect."""
        self._connection.start()

    async def close(self) -> None:
        """See ``Bus.close``. Waits at most 10 s for requests and messages in flight."""
        await self._connection.close(_CLOSE_BUDGET_S)


def _fenced(message: Outgoing, fence: Fence) -> Outgoing:
    expected = {_EXPECTED_OF: str(fence.last_sequence), _OF_SUBJECT: fence.subject}
    return Outgoing(message.subject, message.payload, {**message.headers, **expected})


async def _answer(question: Msg, handler: Handler) -> None:
    try:
        user = _asker(question.headers or {})
        answer = await handler(Request(question.subject, question.data, user))
        if answer is not None:
            await question.respond(answer)
    except (DrayError, OSError, nats.errors.Error) as error:
        structlog.get_logger().warning(
            "a request was not answered", subject=question.subject, error=str(error)
        )
    except Exception:  # noqa: BLE001
        # No request may end the responder and thereby the service.
        structlog.get_logger().exception("a request was not answered", subject=question.subject)


def _asker(headers: Mapping[str, str]) -> str:
    """The authenticated user of another account who sent the request, if its import shares it.

    The server sets the header on requests through an import and overwrites the client's value. A
    message that arrives as a reply has no such header, or that of the responder's account.
    """
    try:
        info = msgspec.json.decode(headers.get(_REQUEST_INFO, "{}"), type=dict[str, Any])
    except msgspec.MsgspecError:
        return ""
    return str(info.get("user") or "") if info.get("acc") == account_of(NODE_AGENT) else ""
