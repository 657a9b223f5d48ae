"""Locks among the agents of one node: during a rolling update two run at the same time.

The kernel releases a lock if its process dies. A lock is held by an open file, so it also works
between agents of one process.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, Final

from dray.api.errors import PermanentError, TemporaryError

_LOOK_EVERY_S: Final = 0.005
_LONGEST_LOOK_S: Final = 0.25


class LockHeldError(TemporaryError):
    """Another agent has held the lock for too long."""


class ForeignAgentError(PermanentError):
    """An agent with another state folder serves the same kubelet."""


class AgentLock:
    """A lock with a counter, which its holders raise when they change what it guards."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.asynccontextmanager
    async def held(self, *, within_s: float | None = None) -> AsyncIterator["HeldLock"]:
        """Hold the lock in the block.

        Raises:
            LockHeldError: another agent holds it for longer than ``within_s``; None: wait forever.
            OSError: the file can't be opened.
        """
        with _opened(self._path) as file:
            await self._acquire(file, within_s)
            yield HeldLock(file)

    async def _acquire(self, file: IO[bytes], within_s: float | None) -> None:
        waited_s, pause_s = 0.0, _LOOK_EVERY_S
        while not _try_lock(file, fcntl.LOCK_EX):
            if within_s is not None and waited_s >= within_s:
                raise LockHeldError(
                    f"{self._path} has been held by another node-agent for {within_s:g} s: is a "
                    "stopped one still on this node?"
                )
            await asyncio.sleep(pause_s)
            waited_s, pause_s = waited_s + pause_s, min(pause_s * 2, _LONGEST_LOOK_S)


class HeldLock:
    """A lock while it is held."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @property
    def counter(self) -> int:
        """How many times the content that the lock guards was changed."""
        text = os.pread(self._file.fileno(), 32, 0).strip()
        return int(text) if text.isdigit() else 0

    def raise_counter(self) -> int:
        """Count a change before it is made; returns the new value."""
        value = self.counter + 1
        os.pwrite(self._file.fileno(), f"{value:020d}\n".encode(), 0)
        return value


@contextlib.contextmanager
def one_state_folder(state_dir: Path, plugin_dir: Path) -> Iterator[bool]:
    """Make sure that all agents of a kubelet share one state folder: with two folders, the same
    device would be prepared twice. Yields whether this agent is the only one at the start.

    Raises:
        ForeignAgentError: another agent with another state folder is running.
        OSError: a folder can't be used.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    plugin_dir.mkdir(parents=True, exist_ok=True)
    status = state_dir.stat()
    # Agents in pods see the folder under the same path, even if it is another folder of the node.
    own = f"{status.st_dev}:{status.st_ino}".encode().ljust(64)
    with _opened(plugin_dir / "agents.lock") as file:
        is_alone = _try_lock(file, fcntl.LOCK_EX)
        if is_alone:
            os.pwrite(file.fileno(), own, 0)
        # This gives up a moment of exclusion; a second agent then only is not alone.
        fcntl.flock(file, fcntl.LOCK_SH)
        if os.pread(file.fileno(), len(own), 0) != own:
            raise ForeignAgentError(
                f"another node-agent serves the kubelet of {plugin_dir} with another state folder "
                f"than {state_dir}: both would prepare the same GPUs. Stop it, or give both the "
                "same DRAY_NODE__STATE_DIR"
            )
        yield is_alone


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        yield file


def _try_lock(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
