"""Why a Go program can't be built, as one sentence that says what to do."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dray.api.errors import PermanentError

_TAIL_LINES = 20
_PACKAGE = re.compile(r"[\w.\-/@~]+")
"""A line of ``go build -v`` that only names a package."""


class BuildError(PermanentError):
    """A Go program could not be built."""


class CannotBuildHereError(BuildError):
    """It could be built elsewhere: this machine lacks network, disk, memory or rights."""


class _Cause(NamedTuple):
    shows: re.Pattern[str]
    why: str
    remedy: str


_CAUSES = (
    _Cause(
        re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE),
        "the disk is full",
        "free 6 GB where Go keeps its caches (`go env GOCACHE GOMODCACHE`) and 500 MB for {cache}, "
        "then run it again",
    ),
    _Cause(
        re.compile(r"signal: killed|cannot allocate memory|out of memory"),
        "memory ran out",
        "free 2.5 GB of memory, then run it again: what was compiled is kept",
    ),
    _Cause(
        re.compile(
            r"dial tcp|no such host|i/o timeout|connection (refused|reset)|network is unreachable"
            r"|TLS handshake|proxyconnect|x509:|GOPROXY=off|GOPROXY list is|503 Service Unavailable"
            r"|407 Proxy Authentication"
        ),
        "Go modules can't be downloaded",
        "connect this machine to the network, or set GOPROXY to a module proxy that it reaches, "
        "then run it again",
    ),
    _Cause(
        re.compile(r"checksum mismatch|SECURITY ERROR"),
        "a downloaded module is not the one that go.sum pins",
        "remove Go's module cache with `go clean -modcache`, ask whoever runs your module proxy, "
        "then run it again",
    ),
)


def build_failure(title: str, code: int, log: Path) -> BuildError:
    """What ``log``, the output of a build that ended with ``code``, means to its reader."""
    lines = log.read_text(errors="replace").splitlines()
    if (known := _known_cause(lines, log.parent)) is not None:
        return CannotBuildHereError(f"{title} can't be built: {known}; all of it is in {log}")
    if _no_room(log.parent):
        full = _CAUSES[0]
        remedy = full.remedy.format(cache=log.parent)
        return CannotBuildHereError(f"{title} can't be built: {full.why}; {remedy}")
    telling = [line for line in lines if _PACKAGE.fullmatch(line) is None]
    tail = "\n".join(telling[-_TAIL_LINES:])
    return BuildError(
        f"building {title} failed with exit code {code}: report this as a defect of dray with "
        f"{log}, which ends with\n{tail or '(nothing)'}"
    )


def known_cause(output: str, cache: Path) -> str | None:
    """What went wrong and what to do, where ``output`` has a line that tells it."""
    return _known_cause(output.splitlines(), cache)


@contextmanager
def cache_errors(directory: Path) -> Iterator[None]:
    """Raise CannotBuildHereError for errors of the file system in the cache ``directory``."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = _CAUSES[0]
            sentence = f"{full.why} ({error}): {full.remedy.format(cache=directory)}"
        else:
            sentence = (
                f"the cache folder {directory} can't be used ({error}): make it yours and "
                "writable, remove what stands in its way, or set XDG_CACHE_HOME to another folder"
            )
        raise CannotBuildHereError(sentence) from error


def _known_cause(lines: list[str], cache: Path) -> str | None:
    for cause in _CAUSES:
        for line in lines:
            if cause.shows.search(line):
                return f"{cause.why} ({line.strip()}): {cause.remedy.format(cache=cache)}"
    return None


def _no_room(directory: Path) -> bool:
    """Whether a file can't grow there: then the log lost the line that says so."""
    probe = directory / "room"
    try:
        with probe.open("wb") as file:
            file.write(bytes(1 << 16))
    except OSError:
        return True
    finally:
        probe.unlink(missing_ok=True)
    return False
