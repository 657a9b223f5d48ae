"""Requests to a real API server. Bodies are plain JSON both ways."""

import asyncio
import contextlib
import io
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec

from dray.api import json_codec
from dray.api.errors import DrayError
from dray.kube.kubeconfig import ServerAccess
from dray.kube.ports import (
    AlreadyExistsError,
    ConflictError,
    KubeUnavailableError,
    NotFoundError,
    NotServedError,
    ObjectVersion,
    RefusedError,
    Transform,
)
from dray.runtime.time_slice import TimeSlice

T = TypeVar("T")
TIMEOUT_S: Final = 30.0
_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 2.0
"""Time for the answer after the server's timeout of a request."""
_JSON: Final = "application/json"
_READ_BUFFER_BYTES: Final = 2**21
"""Large enough that events of large objects arrive in few chunks."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_ANYTHING: Final = msgspec.json.Decoder[Any]()
_AROUND_EVENT: Final = 1
"""Number of containers around the object of a watch event."""
_GONE: Final = 410
_SERVER_FAULTS: Final = 500
_TOO_MANY: Final = 429
_NOT_ALLOWED: Final = (401, 403)
_STARTS_WITHIN_S: Final = 60.0

_PROBES: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A watch may be silent for minutes. After 15 s the kernel probes the server every 5 s, and closes
the connection after 3 probes without an answer."""

Query = Mapping[str, str]


Answered = Callable[[str, str, int | None], None]
"""Called with method, path and status; the status is None if no answer came."""


def _uncounted(method: str, path: str, status: int | None) -> None: ...


class GoneError(KubeUnavailableError):
    """The resourceVersion or continuation asked for is too old (410): list again.

    An admission webhook may answer any request with 410. For methods other than list and watch,
    this is a failure of the server.
    """


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response whose body is not interpreted yet."""

    status: int
    reason: str
    message: str
    causes: str
    retry_after_s: float
    is_about_object: bool
    """Whether it is a ``Status`` that names the object."""


class Transport:
    """Sends requests and maps failures to the port's errors."""

    def __init__(
        self, access: ServerAccess, user_agent: str, answered: Answered = _uncounted
    ) -> None:
        """``answered`` is called for each request except watches: method, path and status."""
        self._access = access
        self._answered = answered
        self._proxy = access.proxy or environment_proxy(access.url)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=access.tls or True),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER_BYTES,
        )
        self._user_agent = user_agent
        self._lost_s: float | None = None
        """Monotonic time at which an answer last failed to arrive."""

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        content_type: str = _JSON,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Send one request; return its JSON answer, as ``decoded`` reads it.

        The server aborts the request ``timeout_s`` after it received it, whatever its admission
        webhooks do. Raises the errors of ``dray.kube.ports``: KubeUnavailableError if no answer
        came (the request may have been carried out). GoneError is one of these.
        """
        data = await self._answer(method, path, query, body, content_type, timeout_s)
        return await decoded(data, f"{method} {path}") if data else {}

    async def page(self, path: str, query: Query, reader: "PageReader") -> "ListPage":
        """One page of a list. Raises the errors of ``call``."""
        return await reader.read(await self._answer("GET", path, query), f"GET {path}")

    async def _answer(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: object = None,
        content_type: str = _JSON,
        timeout_s: float | None = None,
    ) -> bytes:
        total_s = TIMEOUT_S
        if timeout_s is not None:
            query = {**(query or {}), "timeout": f"{timeout_s:.3f}s"}
            total_s = min(TIMEOUT_S, timeout_s + _ANSWER_S)
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=_CONNECT_S)
        payload = None if body is None else msgspec.json.encode(body)
        try:
            async with self._request(
                method, path, query, timeout, data=payload, content_type=content_type
            ) as response:
                data, status = await response.read(), response.status
                failed = _answer_of(response, data) if response.status >= 400 else None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._lost_s = time.monotonic()
            self._answered(method, path, None)
            raise KubeUnavailableError(
                f"{method} {path}: no answer from the API server: {error or type(error).__name__}"
            ) from error
        self._answered(method, path, status)
        if failed is not None:
            raise await self._error(failed, f"{method} {path}")
        return data

    async def lines(
        self, path: str, query: Query, *, silence_s: float
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The JSON lines of a watch until it ends. Lines may have any length.

        Raises the port's errors, including GoneError.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=silence_s)
        try:
            async with self._request("GET", path, query, timeout) as response:
                if response.status >= 400:
                    raise error_of(_answer_of(response, await response.read()), f"watch {path}")
                _probe(response)
                rest = b""
                async for chunk in response.content.iter_any():
                    *complete, rest = (rest + chunk).split(b"\n")
                    for line in complete:
                        if line.strip():
                            yield await decoded(line, f"watch {path}", _AROUND_EVENT)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeUnavailableError(
                f"watch {path}: the connection was lost: {error or type(error).__name__}"
            ) from error

    async def close(self) -> None:
        """Close connections without TLS shutdown, which would take longer than the event loop."""
        if isinstance(self._session.connector, aiohttp.TCPConnector):
            await self._session.connector.close(abort_ssl=True)
        await self._session.close()
        await asyncio.sleep(0)

    async def _error(self, failed: ApiResponse, what: str) -> DrayError:
        """The port's error. A 403 may be temporary: kube-apiserver serves before it has loaded its
        roles, and denies every request until then."""
        error = error_of(failed, what)
        if failed.status in _NOT_ALLOWED and not await self._has_read_its_roles():
            return KubeUnavailableError(
                f"{error} (the API server is starting, and may not have read its roles yet)"
            )
        return error

    async def _has_read_its_roles(self) -> bool:
        """Whether /readyz answers 200; it does so only after the roles are loaded. If /readyz is
        forbidden, a server that was recently unreachable counts as starting."""
        timeout = aiohttp.ClientTimeout(total=_CONNECT_S)
        try:
            async with self._request("GET", "/readyz", None, timeout) as response:
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False
        if status in _NOT_ALLOWED:
            return self._lost_s is None or time.monotonic() - self._lost_s > _STARTS_WITHIN_S
        return status < 400

    async def _authorization(self) -> str:
        try:
            return await self._access.authorization()
        except (ValueError, OSError) as error:
            raise KubeUnavailableError(f"no credentials for the API server: {error}") from error

    @contextlib.asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        timeout: aiohttp.ClientTimeout,
        *,
        data: bytes | None = None,
        content_type: str = _JSON,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept": _JSON, "User-Agent": self._user_agent}
        if data is not None:
            headers["Content-Type"] = content_type
        if authorization := await self._authorization():
            headers["Authorization"] = authorization
        url = f"{self._access.url}{path}" + (f"?{urlencode(query)}" if query else "")
        sent = [*headers.items(), *self._access.impersonation]
        options: dict[str, Any] = {"headers": sent, "timeout": timeout}
        if data is not None:
            # In parts: the library warns about bodies of more than 1 MiB that are sent at once.
            options["data"] = io.BytesIO(data)
        if self._proxy:
            options["proxy"] = self._proxy
        if self._access.tls_server_name:
            options["server_hostname"] = self._access.tls_server_name
        async with self._session.request(method, url, **options) as response:
            try:
                yield response
            finally:
                # An unfinished response is a watch. TLS shutdown would take longer than it.
                if (connection := response.connection) is not None and connection.transport:
                    connection.transport.abort()


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list."""

    metadata: dict[str, Any]
    items: list[Any]
    """The objects. An object that can't be decoded is None."""
    made: dict[int, Any] = field(default_factory=dict)
    """The placeholders for items that were not decoded, by index."""


class _VersionFields(msgspec.Struct, gc=False):
    name: str
    uid: str
    resourceVersion: str
    namespace: str = ""


class _VersionedObject(msgspec.Struct, gc=False):
    """The fields that identify a version of an object. Skipping the rest takes msgspec a fifth of
    the time."""

    metadata: _VersionFields


_VERSIONED: Final = msgspec.json.Decoder(_VersionedObject)


async def decoded(data: bytes, what: str, around: int = 0) -> dict[str, Any]:
    """An object, or a watch event: ``around`` containers are around the object.

    These parts are kept unchanged, as ``msgspec.Raw``: parts that are nested too deep, containers
    in opaque parameters that have many, and numbers out of range. ``fieldsV1`` of managed fields is
    left out: nobody reads it, and it may be most of the object.

    Raises:
        KubeUnavailableError: it is not a JSON object.
    """
    try:
        found = await _object(data, json_codec.MAX_NESTING + around)
    except msgspec.DecodeError as error:
        raise _no_object(what, error) from error
    for obj in (found, found.get("object")):
        _drop_fields(obj)
    return found


@dataclass(frozen=True, slots=True)
class PageReader:
    """Reads pages of lists. Each object is read as ``decoded`` reads one, in a step of its own."""

    head: bytes = b""
    """Begin of an object's text for ``transform`` if the objects do not state their kind."""
    transform: Transform | None = None
    """Called for each object before it is decoded; it may return a replacement."""

    async def read(self, data: bytes, what: str) -> ListPage:
        """One page.

        Raises:
            KubeUnavailableError: it is not a list.
        """
        if (page := json_codec.split(data)) is not None:
            with contextlib.suppress(msgspec.DecodeError):
                return await self._objects(*page, is_split=True)
        try:
            page = await _in_steps(json_codec.cut(data))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _no_object(what, error) from error
        return await self._objects(*page)

    async def _objects(
        self, metadata: dict[str, Any], texts: Sequence[bytes], *, is_split: bool = False
    ) -> ListPage:
        """The page with these objects. ``is_split``: raises msgspec.DecodeError if one can't be
        decoded."""
        page = ListPage(metadata, [])
        items = page.items
        time_slice = TimeSlice()
        for text in texts:
            await time_slice.pause()
            is_shallow = json_codec.is_shallow(text)
            if is_shallow and (made := self._transformed(text)) is not None:
                page.made[len(items)] = made
                items.append(None)
                continue
            try:
                obj = await _object(text, json_codec.MAX_NESTING, is_shallow=is_shallow)
            except msgspec.DecodeError:
                if is_split:
                    raise
                obj = None
            _drop_fields(obj)
            items.append(obj)
        return page

    def _transformed(self, text: bytes) -> Any:
        if self.transform is None:
            return None
        if self.transform.knows_any():
            if (version := _version_of(text)) is None:
                return None
            if (known := self.transform.known(version)) is not None:
                return known
        if self.head and text.startswith(b'{"metadata"'):
            text = self.head + text[1:]
        return self.transform.read(text)


def _version_of(text: bytes) -> ObjectVersion | None:
    """The version of an object that is not nested too deep; None if it can't be read."""
    try:
        metadata = _VERSIONED.decode(text).metadata
        revision = int(metadata.resourceVersion)
    except (ValueError, UnicodeDecodeError):  # msgspec's errors are ValueErrors, too.
        return None
    return ObjectVersion(metadata.name, metadata.uid, revision, metadata.namespace)


async def _in_steps(steps: Generator[None, None, T]) -> T:
    """The result of the generator. Other tasks run between its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found
        await asyncio.sleep(0)


async def _object(data: bytes, nesting: int, *, is_shallow: bool = False) -> dict[str, Any]:
    opaque = []
    for part in json_codec.opaque_parts(data):
        opaque.append(part)
        await asyncio.sleep(0)  # A tenant's claims may take long; a Lease must be renewed.
    return json_codec.decode(data, _OBJECT, nesting=nesting, opaque=opaque, is_shallow=is_shallow)


def _no_object(what: str, error: Exception) -> KubeUnavailableError:
    return KubeUnavailableError(
        f"{what}: the answer is not a JSON object ({error}): is it the API server that answers?"
    )


def _drop_fields(obj: object) -> None:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    managed = metadata.get("managedFields") if isinstance(metadata, dict) else None
    for entry in managed if isinstance(managed, list) else ():
        if isinstance(entry, dict):
            entry.pop("fieldsV1", None)


def _probe(response: aiohttp.ClientResponse) -> None:
    """Enable TCP keepalive, to notice a server that disappeared without closing the connection."""
    connection = response.connection
    transport = connection.transport if connection is not None else None
    if (wire := transport.get_extra_info("socket") if transport is not None else None) is None:
        return
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if (option := getattr(socket, name, None)) is not None:
            wire.setsockopt(socket.IPPROTO_TCP, option, value)


def environment_proxy(host: str) -> str | None:
    """The proxy that ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY`` name for a server's URL."""
    url = urlsplit(host)
    if proxy_bypass(url.hostname or ""):
        return None
    return getproxies().get(url.scheme)


def _answer_of(response: aiohttp.ClientResponse, data: bytes) -> ApiResponse:
    """A failed response: its body is a ``Status`` object or plain text."""
    try:
        status = json_codec.decode(data, _ANYTHING)
    except msgspec.DecodeError:
        status = None
    if not isinstance(status, dict):
        status = {"message": data.decode(errors="replace").strip() or response.reason or ""}
    # A proxy may answer with details of its own.
    details = stated if isinstance(stated := status.get("details"), dict) else {}
    causes = stated if isinstance(stated := details.get("causes"), list) else []
    retry_after = response.headers.get("Retry-After", "") or str(details.get("retryAfterSeconds"))
    return ApiResponse(
        status=response.status,
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        causes="; ".join(str(one.get("message")) for one in causes if isinstance(one, dict)),
        retry_after_s=float(retry_after) if retry_after.isdecimal() else 0.0,
        is_about_object=bool(details.get("name")),
    )


def error_of(answer: ApiResponse, what: str) -> DrayError:
    """The port's error for a failed response, with the server's own message."""
    causes = f" ({answer.causes})" if answer.causes and answer.causes not in answer.message else ""
    message = f"{what}: {answer.message}{causes}"
    if answer.status == 404:
        return NotFoundError(message) if answer.is_about_object else NotServedError(message)
    if answer.status == 409:
        already = answer.reason == "AlreadyExists"
        return AlreadyExistsError(message) if already else ConflictError(message)
    if answer.status == _GONE:
        return GoneError(message)
    if answer.status == _TOO_MANY or answer.status >= _SERVER_FAULTS:
        return KubeUnavailableError(message, answer.retry_after_s)
    return RefusedError(message, answer.status)
