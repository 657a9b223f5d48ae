"""Sampled stacks, summed up by dray's functions and by packages."""

from collections import Counter
from pathlib import Path
from typing import Any

_OURS = ("dray.", "dray_")
_MOST = 22
_LIBRARIES = {
    "ssl": "TLS",
    "aiohttp": "aiohttp",
    "yarl": "aiohttp",
    "multidict": "aiohttp",
    "nats": "nats-py",
    "email": "nats-py headers (email)",
    "asyncio": "asyncio",
    "selectors": "asyncio",
    "uvloop": "asyncio",
    "structlog": "logging",
    "logging": "logging",
    "json": "json",
    "dataclasses": "dataclasses",
    "opentelemetry": "tracing",
}


def groups(stacks: Path) -> dict[str, Any]:
    """``services``: share of samples by dray's innermost function; ``libraries``: by the
    package of the innermost frame. Code in C counts for the Python function that calls it."""
    by_service: Counter[str] = Counter()
    by_library: Counter[str] = Counter()
    for line in stacks.read_text().splitlines():
        text, _, count = line.rpartition(" ")
        frames = text.split(";")
        by_service[_service(frames)] += int(count)
        by_library[_library(frames[-1])] += int(count)
    return {
        "samples": by_service.total(),
        "services": _shares(by_service),
        "libraries": _shares(by_library),
    }


def _service(frames: list[str]) -> str:
    ours = next((one for one in reversed(frames) if one.startswith(_OURS)), "")
    if not ours or ours.startswith(("dray.runtime", "dray_claim_controller.__main__")):
        return f"no code of dray's: {_library(frames[-1])}"
    return ours


def _library(frame: str) -> str:
    module = frame.partition(":")[0]
    if module.startswith(_OURS):
        return ".".join(module.split(".")[:2])
    package = module.partition(".")[0]
    return _LIBRARIES.get(package, package)


def _shares(counts: Counter[str]) -> dict[str, float]:
    total = counts.total() or 1
    return {name: count / total for name, count in counts.most_common(_MOST)}
