"""Free TCP ports of 127.0.0.1 for the programs of local stacks.

A process takes them from blocks that it holds until it ends: programs are started together, long
after their ports were chosen, and another process may start a stack in the same second.
"""

import fcntl
import os
import random
import socket
from collections.abc import Iterator

from dray.api.errors import PermanentError
from dray_sandbox.paths import user_cache

_FIRST_PORT, _LAST_PORT = 20_000, 31_999
"""Below the usual ephemeral range, so that no outgoing connection uses a chosen port."""
_BLOCK = 50
_locks: list[int] = []
"""File descriptors: their locks end with the process, however it ends."""
_own_ports: list[int] = []
"""Ports of held blocks that were not tried yet."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free now; no process of this user gets it a second time
    while this one runs. Another program may still take it.

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
    """Lock blocks that no process has, in random order."""
    folder = user_cache() / "ports"
    folder.mkdir(parents=True, exist_ok=True)
    starts = list(range(_FIRST_PORT, _LAST_PORT + 1, _BLOCK))
    for first in random.sample(starts, len(starts)):
        lock = os.open(folder / str(first), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            _locks.append(lock)
            yield range(first, min(first + _BLOCK, _LAST_PORT + 1))


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
