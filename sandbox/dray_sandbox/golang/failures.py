"""Causes of failed Go builds, each as one sentence with a remedy."""

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
    """This machine lacks the network, disk, memory or rights for the build."""


class _Cause(NamedTuple):
    pattern: re.Pattern[str]
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
        "free 2.5 GB of memory, then run it again: it continues with what was compiled",
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
        "remove Go's module cache with `go clean -modcache`, ask the operator of your module "
        "proxy, then run it again",
    ),
)


def build_failure(title: str, code: int, log: Path) -> BuildError:
    """The error for a build that ended with ``code`` and wrote ``log``."""
    lines = log.read_text(errors="replace").splitlines()
    if (known := _known_cause(lines, log.parent)) is not None:
        return CannotBuildHereError(f"{title} can't be built: {known}; the whole log is {log}")
    if _is_full(log.parent):
        full = _CAUSES[0]
        remedy = full.remedy.format(cache=log.parent)
        return CannotBuildHereError(f"{title} can't be built: {full.why}; {remedy}")
    relevant = [line for line in lines if _PACKAGE.fullmatch(line) is None]
    tail = "\n".join(relevant[-_TAIL_LINES:])
    return BuildError(
        f"building {title} failed with exit code {code}: report this as a defect of dray with "
        f"{log}, which ends with\n{tail or '(nothing)'}"
    )


def known_cause(output: str, cache: Path) -> str | None:
    """The cause and its remedy, if a line of ``output`` has a known one."""
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
                f"the cache folder {directory} can't be used ({error}): make it writable, remove "
                "a file in its place, or set XDG_CACHE_HOME to another folder"
            )
        raise CannotBuildHereError(sentence) from error


def _known_cause(lines: list[str], cache: Path) -> str | None:
    for cause in _CAUSES:
        for line in lines:
            if cause.pattern.search(line):
                return f"{cause.why} ({line.strip()}): {cause.remedy.format(cache=cache)}"
    return None


def _is_full(directory: Path) -> bool:
    """Whether no file can grow there; then the log may lack the line with the cause."""
    probe = directory / "room"
    try:
        with probe.open("wb") as file:
            file.write(bytes(1 << 16))
    except OSError:
        return True
    finally:
        probe.unlink(missing_ok=True)
    return False
