"""The lines of journals from before a recording began, as far back as replay needs them."""

import msgspec

from dray.messages.base import decode, subject_prefix
from dray.messages.inputs import ControllerNoted, Noted
from dray.recording.lines import InputLine

_REMEMBERING: dict[str, type[Noted]] = {
    f"{subject_prefix(kind)}.": kind for kind in (ControllerNoted,)
}
"""Journals of services that keep state. Lines of other journals can be replayed on their own."""


class _LifeKey(msgspec.Struct, frozen=True):
    instance: str
    life: str


class InputHistory:
    """The lines of each process since its start, or since its last complete state."""

    def __init__(self) -> None:
        self._lines: dict[_LifeKey, list[tuple[InputLine, str]]] = {}

    def add(self, line: InputLine) -> None:
        """Add the next line of the stream. Raises UndecodableMessageError."""
        kind = next(
            (one for prefix, one in _REMEMBERING.items() if line.subject.startswith(prefix)), None
        )
        if kind is None:
            return
        noted = decode(bytes(line.payload), kind)
        lines = self._lines.setdefault(_LifeKey(noted.instance, noted.life), [])
        if noted.what == "known":
            parts = 0
            while parts < len(lines) and lines[-1 - parts][1] == "part":
                parts += 1
            del lines[: len(lines) - parts]
        lines.append((line, noted.what))

    def take(self) -> list[InputLine]:
        """Return all lines in the order of the stream, and forget them."""
        lines = [line for life in self._lines.values() for line, _ in life]
        self._lines.clear()
        return sorted(lines, key=lambda line: line.sequence)
