"""What the doctor says: one line per thing it looked at."""

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from dray.kube.ports import KubeUnavailableError, RefusedError

Grade = Literal["ok", "lesser", "unseen", "broken"]
"""``lesser``: works, with less than dray can do. ``unseen``: could not be looked at."""

GRADES: tuple[Grade, ...] = get_args(Grade)
_MARKS: dict[Grade, str] = {"ok": "ok", "lesser": "--", "unseen": "??", "broken": "NO"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    area: str
    """The heading that it stands under."""
    subject: str
    """What was looked at, in a few words."""
    grade: Grade
    text: str = ""
    """What was seen, and what to do unless all is well."""

    more: tuple[str, ...] = ()
    """Lines that stand beneath it."""

    def line(self) -> str:
        """As a person reads it."""
        tail = f": {self.text}" if self.text else ""
        beneath = (f"\n        {line}" for line in self.more)
        return "".join((f"  {_MARKS[self.grade]}  {self.subject}{tail}", *beneath))


async def seen(
    area: str, subject: str, look: Awaitable[Finding | Sequence[Finding]]
) -> list[Finding]:
    """What a look at Kubernetes found; where it could not be taken, why, and the others go on."""
    try:
        found = await look
    except (RefusedError, KubeUnavailableError) as error:
        return [Finding(area, subject, "unseen", str(error))]
    return [found] if isinstance(found, Finding) else list(found)


def broken(findings: Iterable[Finding]) -> bool:
    """Whether anything is in the way of dray's work."""
    return any(finding.grade == "broken" for finding in findings)


def lines(findings: Sequence[Finding]) -> list[str]:
    """All findings under their headings, and a last line that sums them up."""
    areas = list(dict.fromkeys(finding.area for finding in findings))
    told = [
        line
        for area in areas
        for line in (area, *(f.line() for f in findings if f.area == area), "")
    ]
    counts = {grade: sum(finding.grade == grade for finding in findings) for grade in GRADES}
    words = {"ok": "well", "lesser": "with less", "unseen": "not seen", "broken": "broken"}
    summary = ", ".join(f"{count} {words[grade]}" for grade, count in counts.items() if count)
    return [*told, summary]


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """All findings as data."""
    return {"healthy": not broken(findings), "findings": [asdict(f) for f in findings]}
