"""A difference between logs, facts, replicas and Kubernetes, and what to do about it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from dray.api.claims import AllocatedDevice
from dray.api.quantities import readable_quantity
from dray_cli.doctor.findings import Finding

AREA = "Logs, facts and claims"
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Side:
    """What one source says, such as a log or Kubernetes, since when. Times are not compared."""

    who: str
    says: str
    since_unix_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between sources. Two are equal if everything except the times is equal."""

    kind: str
    """For programs, such as ``another-allocation``."""
    about: str
    """``claim default/train``, ``device …``, ``slice …``, ``pool …``."""
    devices: tuple[str, ...]
    """As ``DEVICE on POOL``."""
    sides: tuple[Side, ...]
    right: str
    """Which side is right, and why."""
    do: str

    def finding(self) -> Finding:
        """A finding with a line per side, one for the right side, and one for what to do."""
        rows = [(side.who, f"{side.says}{_since(side.since_unix_s)}") for side in self.sides]
        rows += [("right", self.right), ("do", self.do)]
        width = max(len(who) for who, _ in rows)
        named = (one for one in self.devices if one not in self.about)
        text = ", ".join((self.kind.replace("-", " "), *named))
        more = tuple(f"{who:{width}}  {says}" for who, says in rows)
        return Finding(AREA, self.about, "broken", text, more)

    def as_json(self) -> dict[str, Any]:
        """As data; times in seconds since 1970."""
        return asdict(self)


def devices_text(devices: Iterable[AllocatedDevice]) -> str:
    """Such as ``gpu-0 on node-1 virtual_vram=16Gi``, with commas; ``nothing`` for no devices."""
    return ", ".join(_device_text(one) for one in devices) or NOTHING


def devices_named(*groups: Iterable[AllocatedDevice]) -> tuple[str, ...]:
    """Every device of the groups once, in order."""
    ids = sorted({one.id for group in groups for one in group})
    return tuple(f"{one.device} on {one.pool}" for one in ids)


def _device_text(one: AllocatedDevice) -> str:
    consumed = [f"{name}={readable_quantity(text)}" for name, text in sorted(one.consumed.items())]
    taken = [each for each in consumed if not each.endswith("=0")]
    return " ".join((f"{one.id.device} on {one.id.pool}", *taken))


def _since(unix_s: float | None) -> str:
    if not unix_s:
        return ""
    return f", since {datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%SZ}"
