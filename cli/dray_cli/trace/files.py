"""The spans that the services of a local stack wrote to its folder."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from dray_cli.trace.spans import TraceSpan


def spans_of_trace(folder: Path, trace_id: str) -> tuple[TraceSpan, ...]:
    """All recorded spans of one trace. An absent folder holds none."""
    return tuple(span for span in _read(folder, trace_id) if span.trace_id == trace_id)


def newest_trace_of(folder: Path, namespace: str, pod: str) -> str:
    """The trace id of the newest pod of that name in any span; empty if there is none."""
    found = [
        span
        for span in _read(folder, pod)
        if span.attributes.get("k8s.pod.name") == pod
        and span.attributes.get("k8s.namespace.name") == namespace
    ]
    return max(found, key=lambda span: span.start_unix_ns).trace_id if found else ""


def _read(folder: Path, containing: str) -> Iterator[TraceSpan]:
    """Spans of the lines that contain the text; a line cut off by a kill is left out."""
    needle = containing.encode()
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as lines:
            for line in lines:
                if needle in line and (span := _decoded(line)) is not None:
                    yield span


def _decoded(line: bytes) -> TraceSpan | None:
    try:
        return msgspec.json.decode(line, type=TraceSpan)
    except msgspec.MsgspecError:
        return None
