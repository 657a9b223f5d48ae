"""``python -m dray_sandbox.registry``: serve a folder's images to container runtimes.

The read-only part of the OCI distribution specification, as a mirror of every registry: the
parameter ``ns`` names the registry that the runtime wants.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from aiohttp import web

from dray_sandbox.processes import end_signals
from dray_sandbox.registry.images import MANIFEST_TYPE, ImageStore
from dray_sandbox.registry.names import ImageName

_BLOB_TYPE = "application/octet-stream"


def _application(store: ImageStore) -> web.Application:
    """The HTTP application; HEAD is answered as GET."""

    async def root(request: web.Request) -> web.StreamResponse:
        return web.json_response({})

    async def manifest(request: web.Request) -> web.StreamResponse:
        reference = request.match_info["reference"]
        digest: str | None = reference
        if ":" not in reference:
            registry = request.query.get("ns", "docker.io")
            digest = store.find(ImageName(registry, request.match_info["name"], reference))
        return _blob(store, digest or "", MANIFEST_TYPE)

    async def blob(request: web.Request) -> web.StreamResponse:
        return _blob(store, request.match_info["digest"], _BLOB_TYPE)

    served = web.Application()
    served.router.add_get("/v2/", root)
    served.router.add_get("/v2/{name:.+}/manifests/{reference}", manifest)
    served.router.add_get("/v2/{name:.+}/blobs/{digest}", blob)
    return served


def _blob(store: ImageStore, digest: str, media_type: str) -> web.StreamResponse:
    path = store.blob(digest)
    if path is None:
        error = {"code": "MANIFEST_UNKNOWN", "message": "nobody added this image to the stack"}
        return web.json_response({"errors": [error]}, status=404)
    headers = {"Content-Type": media_type, "Docker-Content-Digest": digest}
    return web.FileResponse(path, headers=headers)


async def serve(directory: Path, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    runner = web.AppRunner(_application(ImageStore(directory)), access_log=None)
    await runner.setup()
    with end_signals() as ended:
        try:
            await web.TCPSite(runner, host, port).start()
            await ended.wait()
        finally:
            await runner.cleanup()


def main() -> int:
    """Exit code 0 after a signal, 2 if the command line is wrong."""
    parser = argparse.ArgumentParser("python -m dray_sandbox.registry", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    asyncio.run(serve(options.directory, options.host, options.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
