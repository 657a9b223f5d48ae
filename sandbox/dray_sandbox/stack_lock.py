"""The lock of a stack's name: only one command at a time starts, runs or ends that stack."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from dray.api.errors import PermanentError
from dray_sandbox.paths import stack_directory


class StackLockedError(PermanentError):
    """Another command is starting or ending a stack of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"another command is starting or stopping a stack named {name!r}: wait until it is "
            "done, or choose another name with --stack"
        )


class StackLock:
    """Held until ``release`` or until the process that holds it ends. A program may inherit it."""

    def __init__(self, fileno: int) -> None:
        """``fileno``: the lock's file, from ``take`` or inherited from the process that took it."""
        os.set_inheritable(fileno, False)
        self.fileno = fileno

    @classmethod
    def take(cls, name: str) -> Self:
        """Raises StackLockedError."""
        path = stack_directory(name).with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        fileno = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fileno, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fileno)
            raise StackLockedError(name) from None
        return cls(fileno)

    def release(self) -> None:
        """Close the file here; a program that inherited it still holds the lock."""
        with suppress(OSError):
            os.close(self.fileno)


@contextmanager
def stack_lock(name: str) -> Iterator[StackLock]:
    """Raises StackLockedError."""
    lock = StackLock.take(name)
    try:
        yield lock
    finally:
        lock.release()
