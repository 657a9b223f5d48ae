"""Readiness checks: whether a URL or a socket answers, or a process listens on a port."""

import asyncio
import contextlib
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=2.0)
_DNS_QUERY = bytes([0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0])
"""A header (RFC 1035, 4.1.1): an id, recursion desired, one question."""
_DNS_ADDRESS = bytes([0, 0, 1, 0, 1])
"""The end of a question: the root, type A, class IN."""
_CRI_VERSION = "/runtime.v1.RuntimeService/Version"
_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
"""Gives each channel its own connection: a shared one that failed is not retried for seconds."""
_SOCKETS = Path("/proc/net/tcp")
_LISTEN = "0A"
"""The state of a listening socket in ``/proc/net/tcp``."""


def answers(
    url: str,
    *,
    authority: Path | None = None,
    token: str = "",
    text: re.Pattern[str] | None = None,
) -> Callable[[], Awaitable[bool]]:
    """A check that ``url`` answers 200. ``authority`` verifies TLS; ``token`` identifies the user.

    ``text``: a pattern that the page must contain.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def check() -> bool:
        context = ssl.create_default_context(cafile=str(authority)) if authority else None
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT, headers=headers) as session,
                session.get(url, ssl=context if context else True) as response,
            ):
                if response.status != 200:
                    return False
                return text is None or text.search(await response.text()) is not None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    return check


def runs_containers(path: Path) -> Callable[[], Awaitable[bool]]:
    """A check that a container runtime answers the CRI method ``Version`` on a Unix socket.

    containerd accepts connections before it can answer; a kubelet that starts then exits.
    """

    async def check() -> bool:
        import grpc  # Only real nodes need it.

        async with grpc.aio.insecure_channel(f"unix:{path}", options=_OWN_CONNECTION) as channel:
            try:
                await channel.unary_unary(_CRI_VERSION)(b"", timeout=2.0)
            except grpc.aio.AioRpcError:
                return False
        return True

    return check


def resolves(name: str, host: str, port: int) -> Callable[[], Awaitable[bool]]:
    """A check that the DNS server at ``host`` knows an IPv4 address of ``name``."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    question = _DNS_QUERY + labels + _DNS_ADDRESS

    def ask() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(1.0)
            client.connect((host, port))
            try:
                client.send(question)
                answer = client.recv(512)
            except OSError:
                return False
        return len(answer) > len(question) and answer[3] & 0xF == 0 and answer[6:8] != b"\0\0"

    return lambda: asyncio.to_thread(ask)


def listens(pid: int, port: int) -> bool:
    """Whether process ``pid`` listens on IPv4 ``port``; true if the system has no /proc/net/tcp."""
    if not _SOCKETS.exists():
        return True
    rows = (row.split() for row in _SOCKETS.read_text().splitlines()[1:])
    listening = {
        f"socket:[{row[9]}]"
        for row in rows
        if row[3] == _LISTEN and row[1].endswith(f":{port:04X}")
    }
    return not listening.isdisjoint(_open_files(pid))


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # the process ended
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # it closed this file
                yield os.readlink(f"/proc/{pid}/fd/{entry}")
