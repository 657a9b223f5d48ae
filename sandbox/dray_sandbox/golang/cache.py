"""A built program in the user's cache: whole, or not there.

Beside each binary stands its hash, which is written last; a binary that does not have it was cut
off or changed, and is built anew. What a build makes on its way lies in ``work``, which the next
one that holds the lock wipes.
"""

import asyncio
import fcntl
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from dray_sandbox.golang.progress import Ticker

_HASH = "blake2b"
_ASKED_EVERY_S = 0.3


def is_whole(binary: Path) -> bool:
    """Whether it is, byte for byte, what was built. False where there is none."""
    try:
        with binary.open("rb") as file:
            return hashlib.file_digest(file, _HASH).hexdigest() == _hash_of(binary).read_text()
    except FileNotFoundError:
        return False


def keep(finished: Path, binary: Path) -> None:
    """Move a finished build to where ``is_whole`` finds it."""
    with finished.open("rb") as file:
        digest = hashlib.file_digest(file, _HASH).hexdigest()
    _hash_of(binary).unlink(missing_ok=True)
    finished.replace(binary)
    written = _hash_of(finished)
    written.write_text(digest)
    written.replace(_hash_of(binary))


@contextmanager
def workshop(directory: Path) -> Iterator[Path]:
    """An empty folder for a build, gone afterwards. Only one run at a time may have it."""
    work = directory / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@asynccontextmanager
async def alone(directory: Path, does: str, progress: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold the lock of ``directory``; waits while another run, which ``does`` it, holds it."""
    with (directory / "lock").open("a+") as file:
        if not _locked(file.fileno()):
            file.seek(0)
            waiting = Ticker(
                progress, f"another run (process {file.read()}) {does}: waiting for it"
            )
            waiting.say()
            while not _locked(file.fileno()):
                waiting.tick()
                await asyncio.sleep(_ASKED_EVERY_S)
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
