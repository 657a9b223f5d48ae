"""Serves AdmissionReviews over HTTPS, with aiohttp.web."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import prometheus_client
import structlog
from aiohttp import web

from dray.api.errors import DrayError
from dray.runtime.units import parse_duration
from dray.telemetry import trace_id
from dray_webhook.decisions.review import (
    AdmissionAnswer,
    AdmissionRequest,
    MalformedReviewError,
    read_review,
    write_review,
)

_DEFAULT_TIMEOUT_S = 10.0
"""The default of ``timeoutSeconds``."""
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1.0, 5.0)


Route = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Handler(Protocol):
    """Answers one request."""

    async def __call__(self, request: AdmissionRequest, *, timeout_s: float) -> AdmissionAnswer: ...


class ListenError(DrayError):
    """The address can't be listened on."""


class AdmissionServer:
    """Serves ``handlers`` by path. Malformed bodies: 400; too long: 413; failed handlers: 500."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        body_limit_bytes: int,
        registry: prometheus_client.CollectorRegistry,
    ) -> None:
        self.port = port
        """After ``start``: the port in use."""
        self._host = host
        self._tls = tls
        self._latency = prometheus_client.Histogram(
            "dray_webhook_admission_seconds",
            "Time from the whole request read to its answer",
            ["path", "outcome"],
            buckets=_BUCKETS,
            registry=registry,
        )
        app = web.Application(client_max_size=body_limit_bytes)
        for path, handler in handlers.items():
            app.router.add_post(path, self._route(path, handler))
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        self.listening = False

    async def start(self) -> None:
        """Listen. Raises ListenError."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port, ssl_context=self._tls)
        try:
            await site.start()
        except OSError as error:
            raise ListenError(
                f"the webhook can't listen on {self._host}:{self.port}: {error.strerror}; "
                "set DRAY_WEBHOOK__HOST and DRAY_WEBHOOK__PORT"
            ) from error
        self.port = self._runner.addresses[0][1]
        self.listening = True

    async def run(self) -> None:
        """Serve until cancelled, then answer the requests in flight."""
        await self.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop listening; requests in flight are answered first."""
        self.listening = False
        await self._runner.cleanup()

    def _route(self, path: str, handler: Handler) -> Route:
        async def handle(http: web.Request) -> web.Response:
            started = time.monotonic()
            try:
                request = read_review(await http.read())
            except MalformedReviewError as error:
                return web.Response(status=400, text=f"{error}\n")
            answer = await handler(request, timeout_s=_timeout_s(http))
            outcome = "allowed" if answer.allowed else "denied"
            took_s = time.monotonic() - started
            trace = trace_id(answer.requested.traceparent) if answer.requested else ""
            self._latency.labels(path, outcome).observe(
                took_s, {"trace_id": trace} if trace else None
            )
            _log(path, request, answer, took_s)
            return web.json_response(write_review(request.uid, answer))

        return handle


def _timeout_s(http: web.Request) -> float:
    try:
        return parse_duration(http.query.get("timeout", ""))
    except ValueError:
        return _DEFAULT_TIMEOUT_S


def _log(path: str, request: AdmissionRequest, answer: AdmissionAnswer, took_s: float) -> None:
    event = answer.requested
    structlog.get_logger().info(
        "admitted" if answer.allowed else "denied",
        path=path,
        operation=request.operation,
        namespace=request.namespace,
        name=request.name,
        uid=request.uid,
        user=request.user_info.username,
        dry_run=bool(request.dry_run),
        took_ms=round(took_s * 1000, 1),
        **({"why": answer.message} if not answer.allowed else {}),
        **({"template": event.template, "traceparent": event.traceparent} if event else {}),
    )
