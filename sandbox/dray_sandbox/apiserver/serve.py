"""A running server for tests and for other parts of the sandbox."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from dray_sandbox.certificates import make_server_files

from .requests import Tokens, user
from .server import STORE, WATCHES, ApiServerSettings, create_app, server_context
from .store import Store
from .watch import Watches

ADMIN_TOKEN = "sandbox-admin"


@dataclass(frozen=True)
class RunningServer:
    """The address and credentials of a server."""

    url: str
    token: str
    ca_file: Path
    app: web.Application

    @property
    def store(self) -> Store:
        """The objects, for tests that look behind the API."""
        return self.app[STORE]

    @property
    def watches(self) -> Watches:
        """The open watches, for tests that end them."""
        return self.app[WATCHES]


@asynccontextmanager
async def serve(
    directory: Path, settings: ApiServerSettings | None = None, *, port: int = 0
) -> AsyncIterator[RunningServer]:
    """Serve on a free local port; certificates go to `directory`. One admin token is known."""
    files = make_server_files(directory, ("127.0.0.1", "localhost"))
    tokens = Tokens({ADMIN_TOKEN: user("kubernetes-admin", "admin", ["system:masters"])})
    app = create_app(tokens, settings)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        context = server_context(files.certificate, files.key)
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=context)
        await site.start()
        bound = runner.addresses[0][1]
        yield RunningServer(f"https://127.0.0.1:{bound}", ADMIN_TOKEN, files.authority, app)
    finally:
        await runner.cleanup()
