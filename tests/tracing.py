"""The file that a service writes its spans to, for the tests of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.telemetry import configure, shutdown


def traced(
    path: Path, monkeypatch: pytest.MonkeyPatch, service: str, instance: str
) -> Iterator[Path]:
    """The path, while what this process does as the service is written there."""
    monkeypatch.setenv("DRAY_TRACE_FILE", str(path))
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    configure(service, instance)
    yield path
    shutdown()


def spans(path: Path) -> list[dict[str, Any]]:
    """All that were written, in order."""
    return [json.loads(line) for line in path.read_text().splitlines()]
