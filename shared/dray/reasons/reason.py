"""A reason: what failed, on how many of how many devices or nodes, and the nearest miss."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

_LONGEST_TEXT: Final = 1024
"""Longer texts are shortened to this many characters."""
_VERDICTS: Final = {"clause": " is false", "clause-error": " can't be evaluated"}
"""The problem of a clause, by kind."""
_UNCOUNTED: Final = ("claim", "pod")
"""Units that are not counted: the reason concerns the pod itself, or one of its claims."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The device or node closest to the requirement."""

    where: str
    """The node, or its device as ``pool/device``: each node has its own pool of devices."""
    seen: str = ""
    """Its actual amount or value; empty if it has none."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A cause of waiting, counted over the devices or nodes examined.

    ``kind`` is one of ``clause`` (a selector clause is false), ``clause-error`` (it can't be
    evaluated), ``capacity`` (too little is left), ``taint``, ``in-use``, ``node`` (cpu, memory,
    pods, selector, taint …), ``count`` (too few devices on one node), ``pool``, ``namespace`` (the
    pool does not admit it), ``unsupported``, ``refused`` (Kubernetes keeps the claim from being
    allocated), ``group`` (its PodGroup can't start). If ``of`` is 0, nothing was counted, and
    ``what`` is a complete sentence.
    """

    kind: str
    what: str
    """The problem in plain words, or the clause. It begins with the requests that it concerns
    (``request gpu/large: …``) if these are not all requests of the pod."""
    failed: int
    of: int
    unit: str = "device"
    detail: str = ""
    nearest: Nearest | None = None
    """The nearest miss; None if none is nearer than the others."""

    def __str__(self) -> str:
        if not self.of:
            return f"{self.what}: {self.detail}" if self.detail else self.what
        units = self.unit if self.of == 1 else self.unit + "s"
        text = self.what + _VERDICTS.get(self.kind, "")
        if self.unit not in _UNCOUNTED:
            text = f"{text}: {self.failed} of {self.of} {units}"
        text = f"{text} ({self.detail})" if self.detail else text
        # If a property is only present or absent, no node is nearer: a name alone says nothing.
        if self.nearest is None or not self.nearest.seen:
            return text
        return f"{text}; nearest: {self.nearest.where} has {self.nearest.seen}"


def not_enough(what: str, asked: str) -> str:
    """The problem if less of something is left than ``asked``."""
    return f"not enough free {what} ({asked} asked)"


def bounded(reasons: Sequence[Reason], limit_bytes: int = 65_536) -> tuple[Reason, ...]:
    """The reasons. If they exceed ``limit_bytes``, their texts are shortened, and only as many are
    returned as fit: claims may have selectors of a megabyte."""
    if _bytes_of(list(map(str, reasons))) <= limit_bytes:
        return tuple(reasons)
    short = [
        replace(one, what=_shortened(one.what), detail=_shortened(one.detail)) for one in reasons
    ]
    kept: list[Reason] = []
    left_bytes = limit_bytes
    for one in short:
        left_bytes -= _bytes_of([str(one)])
        if left_bytes < 0:
            break
        kept.append(one)
    return tuple(kept)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def name_list(names: Sequence[str], most: int = 8) -> str:
    """The names, separated by commas. If there are more than ``most``, ends with how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def in_words(reasons: Sequence[Reason], limit_bytes: int = 4096) -> str:
    """The reasons as lines. If they exceed ``limit_bytes``: as many as fit, and how many more there
    are. The last one is kept if possible, because it concerns all requests together."""
    lines = list(map(str, reasons))
    if _bytes_of(lines) <= limit_bytes:
        return "\n".join(lines)
    for last in (lines[-1:], []):
        others = len(lines) - len(last)
        for shown in range(others - 1, -1, -1):
            shown_lines = [*lines[:shown], f"… and {others - shown} more", *last]
            if _bytes_of(shown_lines) <= limit_bytes:
                return "\n".join(shown_lines)
    return ""


def _bytes_of(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
