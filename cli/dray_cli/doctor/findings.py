"""The doctor's findings: one line per check."""

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from dray.kube.ports import KubeUnavailableError, RefusedError
from dray_cli.text import styled

Grade = Literal["ok", "lesser", "unseen", "broken"]
"""``lesser``: works, but less well than it could. ``unseen``: could not be checked."""

_GRADES: tuple[Grade, ...] = get_args(Grade)
_MARKS: dict[Grade, str] = {"ok": "ok", "lesser": "--", "unseen": "??", "broken": "NO"}
_COLOURS: dict[Grade, str] = {
    "ok": "green",
    "lesser": "yellow",
    "unseen": "yellow",
    "broken": "red",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    area: str
    """The heading."""
    subject: str
    """What was checked, in a few words."""
    grade: Grade
    text: str = ""
    """The result, and what to do if it is not ok."""

    more: tuple[str, ...] = ()
    """Further lines below it."""

    def line(self) -> str:
        """The finding as text."""
        tail = f": {self.text}" if self.text else ""
        beneath = (f"\n        {line}" for line in self.more)
        mark = styled(_MARKS[self.grade], fg=_COLOURS[self.grade])
        return "".join((f"  {mark}  {self.subject}{tail}", *beneath))


def since(at: str, now_unix_s: float) -> str:
    """`` since 8 s``, for a time in RFC 3339; empty if there is none."""
    if not at:
        return ""
    age_s = now_unix_s - datetime.fromisoformat(at).timestamp()
    return f" since {max(0.0, age_s):.0f} s"


async def checked(
    area: str, subject: str, check: Awaitable[Finding | Sequence[Finding]]
) -> list[Finding]:
    """The findings of a check; if Kubernetes returns an error, the error as a finding."""
    try:
        found = await check
    except (RefusedError, KubeUnavailableError) as error:
        return [Finding(area, subject, "unseen", str(error))]
    return [found] if isinstance(found, Finding) else list(found)


def broken(findings: Iterable[Finding]) -> bool:
    """Whether any check failed."""
    return any(finding.grade == "broken" for finding in findings)


def lines(findings: Sequence[Finding]) -> list[str]:
    """All findings under their headings, and a last line that sums them up."""
    areas = list(dict.fromkeys(finding.area for finding in findings))
    text = [
        line
        for area in areas
        for line in (area, *(f.line() for f in findings if f.area == area), "")
    ]
    counts = {grade: sum(finding.grade == grade for finding in findings) for grade in _GRADES}
    words = {"ok": "well", "lesser": "with less", "unseen": "not seen", "broken": "broken"}
    summary = ", ".join(f"{count} {words[grade]}" for grade, count in counts.items() if count)
    return [*text, summary]


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """All findings as data."""
    return {"healthy": not broken(findings), "findings": [asdict(f) for f in findings]}
