"""A server with prepared answers to lists and watches that fails in every way a real one does."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def status(
    code: int, reason: str = "", message: str = "no", *, name: str = "", **headers: str
) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    if name:
        body["details"] = {"name": name}
    return web.json_response(body, status=code, headers=headers)


def pod(name: str, revision: int) -> dict[str, Any]:
    identity = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return {"metadata": identity | {"resourceVersion": str(revision)}}


def listing(revision: int, *names: str, token: str = "") -> web.Response:
    metadata = {"resourceVersion": str(revision), "continue": token}
    return web.json_response({"metadata": metadata, "items": [pod(n, revision) for n in names]})


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


class Script:
    """Answers lists and watches with prepared answers, in order, and keeps the requests."""

    def __init__(self) -> None:
        self.lists: list[web.Response] = []
        self.watches: list[web.Response | list[bytes]] = []
        self.asked: list[dict[str, str]] = []
        self.store = listing(2**53)
        """The answer when a client asks for the version of the store."""
        self.idle = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        if query.get("limit") == "1":
            return web.Response(body=self.store.body, content_type="application/json")
        if query.get("watch") != "true":
            return self.lists.pop(0)
        self.asked.append(query)
        answer = self.watches.pop(0) if self.watches else []
        if isinstance(answer, web.Response):
            return answer
        response = web.StreamResponse()
        await response.prepare(request)
        for part in answer:
            await response.write(part)
        if not self.watches and not answer:
            self.idle.set()
            await asyncio.Event().wait()
        return response


def kubeconfig(directory: Path, url: str) -> Path:
    """A file that names the server."""
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path = directory / "kubeconfig"
    path.write_text(json.dumps(content))
    return path
