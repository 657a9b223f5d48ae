"""Atomic file writes: a crash leaves the old content or the new."""

import os
import secrets
from pathlib import Path
from typing import Final

_TOKEN_BYTES: Final = 8


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600, sync: bool = True) -> None:
    """Write a temporary file in the same folder and rename it. With ``sync`` the content is on the
    disk before the rename. The new name is on the disk only after ``sync_folder``, or after some
    seconds. Raises OSError."""
    # Process ids are not unique: each agent of a rolling update has its own process namespace.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(_TOKEN_BYTES)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # it does not exist after the rename


def remove_unfinished(folder: Path, name: str = "*") -> None:
    """Remove temporary files of killed processes for files called ``name`` (wildcards allowed).

    Call it only if no other process writes such files. Raises OSError.
    """
    for path in folder.glob(f".{name}.*.tmp"):
        if _is_token(path.name.split(".")[-2]):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Write the names of a folder's files to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_token(text: str) -> bool:
    """Whether ``text`` is the token of a temporary file; earlier releases used the process id."""
    is_own = len(text) == 2 * _TOKEN_BYTES and all(one in "0123456789abcdef" for one in text)
    return is_own or text.isdecimal()
