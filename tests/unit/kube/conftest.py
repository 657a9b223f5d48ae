"""The real adapter, connected to a server whose answers a test makes."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from tests.unit.kube.faulty_server import Handler, kubeconfig

from dray.kube.api import KubeApi, connect


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Callable[[Handler], Awaitable[KubeApi]]]:
    runners: list[web.AppRunner] = []
    apis: list[KubeApi] = []

    async def serve(handler: Handler, readyz: int = 200) -> KubeApi:
        async def ready(_: web.Request) -> web.Response:
            return web.Response(status=readyz)

        app = web.Application()
        app.router.add_route("GET", "/readyz", ready)
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        apis.append(await connect(str(kubeconfig(tmp_path, url)), user_agent="dray-test"))
        return apis[-1]

    yield serve
    for api in apis:
        await api.close()
    for runner in runners:
        await runner.cleanup()
