"""/healthz, /readyz and /metrics of one process."""

from collections.abc import Callable

import prometheus_client
from aiohttp import web
from prometheus_client.exposition import choose_encoder

Check = Callable[[], str | None]
"""None while healthy, else the problem."""


class HealthPages:
    """The pages, their named readiness checks, and the registry of metrics.

    ``/healthz`` answers while the event loop runs; ``/readyz`` lists each check and is 503 while
    one fails or the process drains; ``/metrics`` is the registry in Prometheus' text format, or as
    OpenMetrics, with exemplars.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.port = port
        """After ``start``: the port in use."""
        self._host = host
        self._checks: dict[str, Check] = {}
        self._degraded: dict[str, Check] = {}
        self._draining = False
        self._runner: web.AppRunner | None = None

    def check(self, name: str, check: Check) -> None:
        """Make the process not ready while ``check`` returns a problem."""
        self._checks[name] = check

    def report(self, name: str, check: Check) -> None:
        """Show a problem on /readyz without becoming unready (degraded)."""
        self._degraded[name] = check

    def drain(self) -> None:
        """Make the process not ready from now on, because it is ending."""
        self._draining = True

    @property
    def ready(self) -> bool:
        """Whether /readyz answers 200."""
        return not self._draining and not any(check() for check in self._checks.values())

    async def start(self) -> None:
        """Serve the pages; then ``port`` is the port in use."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the pages."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, _: web.Request) -> web.Response:
        checks = {name: check() or "ok" for name, check in self._checks.items()}
        if self._draining:
            checks["lifetime"] = "draining"
        ready = all(answer == "ok" for answer in checks.values())
        degraded = {name: answer for name, check in self._degraded.items() if (answer := check())}
        body = {"ready": ready, "checks": checks, "degraded": degraded}
        return web.json_response(body, status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        accepted = request.headers.get("Accept", "")
        encode, content_type = choose_encoder(accepted)  # OpenMetrics has exemplars
        return web.Response(body=encode(self.registry), headers={"Content-Type": content_type})
