"""Looks once, and where sides differ a second time: what is merely under way is not told."""

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
from dray_cli.doctor.deep.learned import as_json, learned_of, told
from dray_cli.doctor.deep.sight import Sight, look
from dray_cli.doctor.findings import Finding
from dray_cli.wording import counted

SETTLES_S = 5.0
"""What differs for a shorter time is under way: a fact, a record or a status is being written."""

_UNSEEN = (
    BusUnavailableError,
    StreamMissingError,
    UndecodableMessageError,
    RefusedError,
    KubeUnavailableError,
)


@dataclass(frozen=True, slots=True)
class Deep:
    """What a deep look came to."""

    findings: list[Finding]
    """What was compared, or why it could not be."""
    differences: list[Difference] = field(default_factory=list)
    """Those that lasted."""
    learned: dict[str, Learned] = field(default_factory=dict)
    """Per pool, what FragmentationAware decides by."""

    def as_json(self) -> dict[str, Any]:
        """What the findings don't tell programs."""
        return {
            "differences": [one.as_json() for one in self.differences],
            "learned": as_json(self.learned),
        }


NOT_LOOKED = Deep(
    [Finding(AREA, "comparison", "unseen", "nothing was compared, for want of the bus")]
)


async def look_deep(
    bus: Bus, kube: Kube, *, pause: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> Deep:
    """Compare all sides."""
    try:
        sight, found = await _lasting(bus, kube, pause)
    except _UNSEEN as error:
        return Deep([Finding(AREA, "comparison", "unseen", str(error))])
    differing = [one.finding() for one in found] or [_all_equal(sight)]
    learned = learned_of(sight)
    findings = [*unanswered(sight), *too_large(sight), *differing, *told(learned)]
    return Deep(findings, found, learned)


async def _lasting(
    bus: Bus, kube: Kube, pause: Callable[[float], Awaitable[object]]
) -> tuple[Sight, list[Difference]]:
    first = await look(bus, kube)
    floor = first.state.facts.position
    before = differences(first, floor=floor)
    if not before:
        return first, []
    await pause(SETTLES_S)
    second = await look(bus, kube)
    lasting = set(before)
    return second, [one for one in differences(second, floor=floor) if one in lasting]


def unanswered(sight: Sight) -> list[Finding]:
    """Pools whose replica gave no answer."""
    return [
        Finding(
            AREA,
            f"allocator of pool {domain}",
            "broken",
            f"no replica that serves it answered ({why}): nothing is decided there; does an "
            "allocator run, and is it of this version?",
        )
        for domain, why in sight.replicas.items()
        if isinstance(why, str)
    ]


def too_large(sight: Sight) -> list[Finding]:
    """Claims and base templates that the bus has in part only."""
    claims = sight.state.facts.claims.values()
    found = {f"claim {one.namespace}/{one.name}": one.spec.too_large for one in claims}
    found |= {f"template {name}": why for name, why in sight.unusable.items()}
    return [Finding(AREA, name, "lesser", why) for name, why in found.items() if why]


def _all_equal(sight: Sight) -> Finding:
    claims, logs = counted(len(sight.claims), "claim"), counted(len(sight.logs), "log")
    slices = counted(len(sight.slices), "slice")
    answers = sum(not isinstance(one, str) for one in sight.replicas.values())
    said = counted(answers, "allocator's answer", "allocators' answers")
    text = f"no difference that lasts between {claims}, {slices}, {logs} and {said}"
    return Finding(AREA, "comparison", "ok", text)
