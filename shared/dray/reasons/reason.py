"""A reason: what failed, on how many of how many devices or nodes, and the nearest miss."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

_LONGEST_TEXT: Final = 1024
"""Characters of a text that is shortened."""
_VERDICTS: Final = {"clause": " is false", "clause-error": " can't be evaluated"}
"""What is wrong with a clause, by kind."""
_UNCOUNTED: Final = ("claim", "pod")
"""Units that are not counted: a reason is about the pod itself, or one claim of it."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The device or node closest to the requirement."""

    where: str
    """The node, or its device as ``pool/device``: a pool of devices is a node."""
    seen: str = ""
    """Its actual amount or value; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A cause of waiting, counted over the devices or nodes examined.

    ``kind`` is one of ``clause`` (a selector clause is false), ``clause-error`` (it can't be
    evaluated), ``capacity`` (too little is left), ``taint``, ``in-use``, ``node`` (cpu, memory,
    pods, selector, taint …), ``count`` (too few devices on one node), ``pool``, ``namespace`` (the
    pool does not admit it), ``unsupported``, ``refused`` (Kubernetes keeps the claim from being
    allocated), ``group`` (its PodGroup can't start). Where ``of`` is 0, nothing was counted, and
    ``what`` is a sentence by itself.
    """

    kind: str
    what: str
    """What is wrong, as a person would say it, or the clause; before it the requests that it is
    about (``request gpu/large: …``), where those are not all of the pod's."""
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
        # Of what is there or not nobody has more than the others: a name alone would say nothing.
        if self.nearest is None or not self.nearest.seen:
            return text
        return f"{text}; nearest: {self.nearest.where} has {self.nearest.seen}"


def not_enough(what: str, asked: str) -> str:
    """What is wrong where less of something is left than ``asked``."""
    return f"not enough free {what} ({asked} asked)"


def bounded(reasons: Sequence[Reason], limit_bytes: int = 65_536) -> tuple[Reason, ...]:
    """The reasons, with shorter texts, and no more than there is room for, where they exceed
    ``limit_bytes``: claims may ask with selectors of a megabyte."""
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
    """The names with commas between them; if there are more than ``most``, how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def in_words(reasons: Sequence[Reason], limit_bytes: int = 4096) -> str:
    """The reasons as lines; if they exceed ``limit_bytes``, as many as there is room for, and
    how many more there are. The last one stays if it can: it tells of all requests together."""
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
