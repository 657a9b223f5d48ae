"""Atomic file writes: a crash leaves the old content or the new."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from dray.api.errors import PermanentError


class AlreadyServedError(PermanentError):
    """Another node-agent uses the same state folder."""


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Temporary file in the same folder, fsync, rename, fsync of the folder. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # there is none once it was renamed
    _sync_folder(path.parent)


def remove_unfinished(folder: Path, name: str = "*") -> None:
    """Remove temporary files of killed processes for files called ``name`` (wildcards allowed).

    Call it only if no other process writes such files. Raises OSError.
    """
    for path in folder.glob(f".{name}.*.tmp"):
        if path.name.split(".")[-2].isdecimal():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def sole_user(folder: Path) -> Iterator[None]:
    """Lock the state folder until the end of the block; the kernel releases it if the process dies.

    Raises:
        AlreadyServedError: another process has the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "agent.lock"
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise AlreadyServedError(
                f"{folder} is held by another node-agent (pid {holder}): two on one node would "
                "undo each other's work; stop that one, or give this one its own state folder"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
