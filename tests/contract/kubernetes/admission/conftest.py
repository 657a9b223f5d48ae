"""An admission webhook with fixed responses, and how a test waits until it is called."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dray_sandbox.certificates import make_server_files

InForce = Callable[..., Awaitable[None]]
Refusal = Callable[[], Awaitable[Any]]


async def nothing() -> None:
    """What stopping a server that was not started does."""


@dataclass
class Webhook:
    """A webhook server that keeps its requests and gives a fixed response."""

    url: str
    ca_bundle: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    response: dict[str, Any] = field(default_factory=dict)
    patch: list[dict[str, Any]] = field(default_factory=list)
    hang: bool = False
    stop: Callable[[], Awaitable[None]] = nothing

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        response = {"uid": request["uid"], "allowed": True, **self.response}
        if self.patch and request["operation"] != "DELETE":
            encoded = base64.b64encode(json.dumps(self.patch).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": encoded}
        return response

    def configuration(self, api: Any, kind: str = "Mutating", **more: Any) -> dict[str, Any]:
        rule = {
            "operations": ["CREATE", "UPDATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
        }
        webhook = {
            "name": "hook.example.com",
            "clientConfig": {"url": self.url, "caBundle": self.ca_bundle},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}},
            **more,
        }
        return {"metadata": {"name": api.unique("hook")}, "webhooks": [webhook]}


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    files = make_server_files(tmp_path, ("127.0.0.1",))
    bundle = base64.b64encode(files.authority.read_bytes()).decode()
    hook = Webhook("", bundle)

    async def review(request: web.Request) -> web.Response:
        body = await request.json()
        if hook.hang:
            await asyncio.sleep(30)
        answer = hook.answer(body["request"])
        kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response(kind | {"response": answer})

    app = web.Application()
    app.router.add_post("/mutate", review)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    hook.url = f"https://127.0.0.1:{runner.addresses[0][1]}/mutate"
    hook.stop = runner.cleanup
    yield hook
    await runner.cleanup()


async def in_force(api: Any, hook: Webhook, plural: str, body: Any, probe: Any = None) -> None:
    """Create a configuration and wait until the server follows it: real ones take a moment."""
    await api.create(plural, body)

    async def asked() -> bool:
        try:
            await api.create("pods", probe or api.pod("probe"), dryRun="All")
        except AssertionError as error:
            return "webhook" in str(error)
        return bool(hook.requests)

    await api.until(asked)
    hook.requests.clear()


@pytest.fixture(name="in_force")
def in_force_fixture() -> InForce:
    """Creates a configuration; returns once the server follows it."""
    return in_force


@pytest.fixture
def refusal(api: Any, refused: type[AssertionError]) -> Refusal:
    """Makes the pod `one`, which must be refused; returns how it was."""

    async def refusal() -> Any:
        with pytest.raises(refused) as caught:
            await api.create("pods", api.pod("one"))
        return caught.value

    return refusal
