"""The lines of a recording. The first is the header; ``line`` names the kind of the others.

Payloads are kept as the bus carried them, byte for byte.
"""

import msgspec

FORMAT = 2
"""Increased when an older reader would misunderstand the lines."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="header"):
    """The origin of the recording. Settings are in the records and inputs that depend on them."""

    format: int = FORMAT
    dray: str
    """The dray version that recorded."""
    domains: tuple[str, ...] = ()
    """Scheduling domains at the start."""
    streams: dict[str, str] = {}
    """Creation time of each stream. It changes when the stream is re-created."""
    recorded_unix_s: float = 0.0


class FactLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="fact"):
    """A message of the facts stream."""

    sequence: int
    subject: str
    time_unix_s: float
    """When the stream stored it."""
    payload: msgspec.Raw


class WholeLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="whole"):
    """The facts before this line are the whole state at ``sequence``, but maybe not each step to
    it: the stream keeps only the last fact of each object. A recording begins with such a state,
    its checkpoint. After it, every fact is known until a ``gap``."""

    sequence: int


class GapLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="gap"):
    """Facts that were replaced by later ones before they could be read. From here to the next
    ``whole`` line, the state is not known."""

    first: int
    last: int


class RecordLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="record"):
    """A record of a decision log."""

    domain: str
    epoch: int
    sequence: int
    time_unix_s: float
    payload: msgspec.Raw


class InputLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="input"):
    """A journal line of a service other than the allocator."""

    sequence: int
    subject: str
    time_unix_s: float
    payload: msgspec.Raw


class StreamLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="stream"):
    """A stream that is read from here on. If it is the facts stream, it was re-created: facts from
    the old stream no longer count, and sequences begin again."""

    name: str
    created: str


class UnknownLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="unknown"):
    """A line of a kind that this version does not know. Only readers create it."""

    kind: str


KnownLine = Header | FactLine | WholeLine | GapLine | RecordLine | InputLine | StreamLine
Line = KnownLine | UnknownLine
