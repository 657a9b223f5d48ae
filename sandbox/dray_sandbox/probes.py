"""Readiness checks: does something answer?"""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=2.0)


def answers(
    url: str, *, authority: Path | None = None, token: str = ""
) -> Callable[[], Awaitable[bool]]:
    """A check that ``url`` answers 200, over TLS of ``authority`` and as ``token``'s user."""
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
