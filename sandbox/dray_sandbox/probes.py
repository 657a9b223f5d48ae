"""Readiness checks: whether a URL answers, a socket accepts, a process listens on a port."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=2.0)
_SOCKETS = Path("/proc/net/tcp")
_LISTEN = "0A"
"""The state of a listening socket in that table."""


def answers(
    url: str, *, authority: Path | None = None, token: str = ""
) -> Callable[[], Awaitable[bool]]:
    """A check that ``url`` answers 200, over TLS of ``authority`` and as the user of ``token``."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def check() -> bool:
        context = ssl.create_default_context(cafile=str(authority)) if authority else None
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT, headers=headers) as session,
                session.get(url, ssl=context if context else True) as response,
            ):
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    return check


def accepts_connections(socket: Path) -> Callable[[], Awaitable[bool]]:
    """A check that a process accepts connections to a Unix socket."""

    async def check() -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(str(socket))
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    return check


def listens(pid: int, port: int) -> bool:
    """Whether process ``pid`` listens on ``port`` of IPv4; true if the system has no such table."""
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
