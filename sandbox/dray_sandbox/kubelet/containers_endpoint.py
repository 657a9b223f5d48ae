"""The endpoint at which the API server asks simulated kubelets for logs and commands in containers.

There are no containers: every answer is a sentence that says what runs them. The API server passes
the text of a 400 on to kubectl.
"""

import asyncio
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from aiohttp import web

from dray_sandbox.certificates import make_server_files
from dray_sandbox.kubelet.plan import HOST

_NO_CONTAINERS: Final = (
    "simulated kubelets run no containers, so there are no logs, commands or ports of them: "
    "start a stack that runs them with `dray up --kubelet real`"
)


async def refuse_forever(port: int) -> None:
    """Answer every HTTPS request on ``port`` with the sentence."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _refuse)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        # Not `localhost`: a machine without IPv6 may resolve it to ::1, which can't be bound.
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=_context()).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


async def _refuse(request: web.Request) -> web.Response:
    if request.path.startswith("/portForward"):  # Only a Status reaches kubectl from here.
        status = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 400}
        return web.json_response(status | {"message": _NO_CONTAINERS}, status=400)
    return web.Response(status=400, text=_NO_CONTAINERS)


def _context() -> ssl.SSLContext:
    """A TLS context with its own certificate, which the API server does not check."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as folder:
        files = make_server_files(Path(folder), (HOST,))
        context.load_cert_chain(files.certificate, files.key)
    return context
