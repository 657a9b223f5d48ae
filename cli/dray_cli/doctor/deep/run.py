"""Compares all sides; reports only differences that are still there in a second snapshot."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.kube.ports import Kube, KubeUnavailableError, RefusedError
from dray.messages.base import UndecodableMessageError
from dray.messages.decisions import Learned
from dray_cli.doctor.deep.compare import differences
from dray_cli.doctor.deep.differences import AREA, Difference
from dray_cli.doctor.deep.fragmentation_data import as_json, learned_findings, learned_of
from dray_cli.doctor.deep.snapshot import ClusterSnapshot, collect
from dray_cli.doctor.findings import Finding
from dray_cli.text import counted

_SETTLES_S = 5.0
"""A difference that lasts less is a write in progress, of a fact, a record or a status."""

_UNSEEN = (
    BusUnavailableError,
    StreamMissingError,
    UndecodableMessageError,
    RefusedError,
    KubeUnavailableError,
)


@dataclass(frozen=True, slots=True)
class DeepResult:
    """The result of the comparison."""

    findings: list[Finding]
    """What was compared, or why it was not."""
    differences: list[Difference] = field(default_factory=list)
    """The lasting differences."""
    learned: dict[str, Learned] = field(default_factory=dict)
    """Per pool, the data that FragmentationAware uses."""

    def as_json(self) -> dict[str, Any]:
        """Data in addition to the findings."""
        return {
            "differences": [one.as_json() for one in self.differences],
            "learned": as_json(self.learned),
        }


NOT_RUN = DeepResult(
    [Finding(AREA, "comparison", "unseen", "nothing was compared: the bus was not reached")]
)


async def run_deep(
    bus: Bus, kube: Kube, *, pause: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> DeepResult:
    """Compare all sides."""
    try:
        snapshot, found = await _lasting(bus, kube, pause)
    except _UNSEEN as error:
        return DeepResult([Finding(AREA, "comparison", "unseen", str(error))])
    differing = [one.finding() for one in found] or [_all_equal(snapshot)]
    learned = learned_of(snapshot)
    findings = [*_unanswered(snapshot), *differing, *learned_findings(learned)]
    return DeepResult(findings, found, learned)


async def _lasting(
    bus: Bus, kube: Kube, pause: Callable[[float], Awaitable[object]]
) -> tuple[ClusterSnapshot, list[Difference]]:
    first = await collect(bus, kube)
    floor = first.state.facts.position
    before = differences(first, floor=floor)
    if not before:
        return first, []
    await pause(_SETTLES_S)
    second = await collect(bus, kube)
    lasting = set(before)
    return second, [one for one in differences(second, floor=floor) if one in lasting]


def _unanswered(snapshot: ClusterSnapshot) -> list[Finding]:
    """Pools whose replica did not answer."""
    return [
        Finding(
            AREA,
            f"allocator of pool {domain}",
            "broken",
            f"no replica that serves it answered ({why}): nothing is decided there; does an "
            "allocator run, and is it of this version?",
        )
        for domain, why in snapshot.replicas.items()
        if isinstance(why, str)
    ]


def _all_equal(snapshot: ClusterSnapshot) -> Finding:
    claims, logs = counted(len(snapshot.claims), "claim"), counted(len(snapshot.logs), "log")
    slices = counted(len(snapshot.slices), "slice")
    answers = sum(not isinstance(one, str) for one in snapshot.replicas.values())
    replicas = counted(answers, "allocator's answer", "allocators' answers")
    text = f"no lasting difference between {claims}, {slices}, {logs} and {replicas}"
    return Finding(AREA, "comparison", "ok", text)
