"""Free TCP ports of 127.0.0.1 for the programs of local stacks.

A process takes ports from blocks that it holds until it ends: its programs start together, long
after their ports were chosen, and another process may start a stack in the same second. A process
holds a block by binding the block's first port. This needs no file, and it works everywhere that
the ports themselves are shared.
"""

import random
import socket
from collections.abc import Iterator

from dray.api.errors import PermanentError

_FIRST_PORT, _LAST_PORT = 20_000, 31_999
"""Below the usual ephemeral range, so that no outgoing connection uses a chosen port."""
_BLOCK = 50
_own_ports: list[int] = []
"""Ports of held blocks that were not tried yet."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free now. While this process runs, this function gives the
    port to no other process, but another program may still take it.

    Raises:
        PermanentError: there is none.
    """
    blocks = _free_blocks()
    while True:
        while _own_ports:
            if _is_free(port := _own_ports.pop()):
                return port
        block = next(blocks, None)
        if block is None:
            raise PermanentError(
                f"no port of 127.0.0.1 between {_FIRST_PORT} and {_LAST_PORT} is free: end local "
                "stacks and other programs that listen there"
            )
        _own_ports.extend(block)


def _free_blocks() -> Iterator[range]:
    """Take blocks that no process has, in random order."""
    starts = list(range(_FIRST_PORT, _LAST_PORT + 1, _BLOCK))
    for first in random.sample(starts, len(starts)):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
            try:
                bound.bind(("127.0.0.1", first))
            except OSError:
                continue
            bound.detach()  # It is closed when the process ends, for any reason.
        yield range(first + 1, min(first + _BLOCK, _LAST_PORT + 1))


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
