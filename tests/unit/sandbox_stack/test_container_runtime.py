"""When a container runtime counts as ready."""

from pathlib import Path
from typing import Any

import grpc

from dray_sandbox.probes import runs_containers


async def test_a_runtime_is_ready_once_it_answers_and_not_when_it_accepts_connections(
    tmp_path: Path,
) -> None:
    """Started earlier, a kubelet ends with ``server is not initialized yet``."""
    is_initialized = False

    async def version(_: bytes, context: Any) -> bytes:
        if not is_initialized:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "server is not initialized yet")
        return b""

    socket = tmp_path / "s"
    is_ready = runs_containers(socket)
    assert not await is_ready()
    server = grpc.aio.server()
    methods = {"Version": grpc.unary_unary_rpc_method_handler(version)}
    handler = grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", methods)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        assert not await is_ready()
        is_initialized = True
        assert await is_ready()
    finally:
        await server.stop(0)
