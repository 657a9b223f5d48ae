"""The machine on which a figure was measured, and summaries of figures."""

import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path


def machine() -> str:
    """Processor, cores, memory, system and Python, in one line."""
    cores = os.cpu_count()
    return (
        f"{_processor()}, {cores} cores, {_memory_gib()} GiB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}"
    )


def add_a_thousand() -> int:
    """A reference for figures: its duration shows the speed of the machine at that moment."""
    total = 0
    for number in range(1000):
        total += number
    return total


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile (the nearest sample at or above it)."""
    ordered = sorted(samples)
    last = max(0, -(-len(ordered) * 99 // 100) - 1)
    return {"p50": statistics.median(ordered), "p99": ordered[last], "samples": len(ordered)}


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> str:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            return f"{int(line.split()[1]) / 2**20:.0f}"
    return "?"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
