"""Calls of the kubelet's own gRPC services on unix sockets."""

from pathlib import Path
from typing import Any, Final

import grpc

_TIMEOUT_S: Final = 10.0


async def call(socket: Path, method: str, request: Any, answer: Any) -> Any:
    """Call ``/service/method``; ``answer``: the type of its answer. Raises grpc.aio.AioRpcError."""
    # The kubelet's server checks the authority, which is the path otherwise.
    options = [("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        unary = channel.unary_unary(
            method,
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return await unary(request, timeout=_TIMEOUT_S)
