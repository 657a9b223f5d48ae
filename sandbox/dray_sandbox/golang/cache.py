"""Built programs in the user's cache.

Each binary has a hash file, which is written last. A binary that does not match its hash is
incomplete or changed, and is built again. A build uses the folder ``work``; the next build that
holds the lock empties it.
"""

import asyncio
import fcntl
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from dray_sandbox.golang.command import Ticker

_HASH = "blake2b"
_POLL_S = 0.3


def is_intact(binary: Path) -> bool:
    """Whether the binary exists and matches its hash."""
    try:
        with binary.open("rb") as file:
            return hashlib.file_digest(file, _HASH).hexdigest() == _hash_of(binary).read_text()
    except FileNotFoundError:
        return False


def install_binary(finished: Path, binary: Path) -> None:
    """Move a finished build to ``binary`` and write its hash."""
    with finished.open("rb") as file:
        digest = hashlib.file_digest(file, _HASH).hexdigest()
    _hash_of(binary).unlink(missing_ok=True)
    finished.replace(binary)
    written = _hash_of(finished)
    written.write_text(digest)
    written.replace(_hash_of(binary))


@contextmanager
def build_directory(directory: Path) -> Iterator[Path]:
    """An empty temporary folder for a build. Hold ``cache_lock``."""
    work = directory / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@asynccontextmanager
async def cache_lock(
    directory: Path, activity: str, progress: Callable[[str], None]
) -> AsyncIterator[None]:
    """Hold the lock of ``directory``; ``activity`` describes another run that holds it."""
    with (directory / "lock").open("a+") as file:
        if not _locked(file.fileno()):
            file.seek(0)
            what = f"another run (process {file.read()}) {activity}: waiting for it"
            progress(what)
            ticker = Ticker(progress, what)
            while not _locked(file.fileno()):
                ticker.tick()
                await asyncio.sleep(_POLL_S)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _hash_of(binary: Path) -> Path:
    return binary.with_name(f"{binary.name}.{_HASH}")
