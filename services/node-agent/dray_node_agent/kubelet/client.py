"""Calls the kubelet's own gRPC services on unix sockets."""

from pathlib import Path
from typing import Any, Final

import grpc

from dray.api.errors import TemporaryError

_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 16 * 2**20
"""Limit of an answer. gRPC's default is 4 MiB; the list of a node full of pods that share many
devices is longer."""


class KubeletCallError(TemporaryError):
    """The kubelet does not answer, refuses the call, or gives an answer that can't be read."""


async def call(socket: Path, method: str, request: Any, answer: Any) -> Any:
    """Call ``/service/method``; ``answer``: the type of its answer. Raises KubeletCallError, also
    after 10 s without an answer."""
    options = [
        # The kubelet's server checks the authority, which would otherwise be the path.
        ("grpc.default_authority", "localhost"),
        ("grpc.max_receive_message_length", _MOST_BYTES),
    ]
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        unary = channel.unary_unary(
            method,
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        try:
            made = await unary(request, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise KubeletCallError(error.details() or str(error.code())) from error
    if made is None:  # gRPC has logged why
        raise KubeletCallError(f"its answer can't be read as {answer.DESCRIPTOR.full_name}")
    return made
