"""How often calls are harmed, and which one call in particular."""

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from dray_sandbox.simulation.faults import Fault

_WRITES = ("patch", "update", "create", "bind", "delete", "append", "publish", "ack")


@dataclass(slots=True)
class FaultRates:
    """How often a call meets each harm; a seed draws its own mix."""

    rates: dict[Fault, float]
    victims: tuple[str, ...]
    """Prefixes of the processes' names."""

    @classmethod
    def drawn(cls, draw: random.Random) -> "FaultRates":
        """Some harms, some victims."""
        faults: list[Fault] = [fault for fault in Fault if fault is not Fault.NONE]
        chosen = draw.sample(faults, draw.randint(1, len(faults)))
        scale = draw.choice((0.002, 0.01, 0.03, 0.08))
        rates: dict[Fault, float] = {fault: scale * draw.uniform(0.2, 1.0) for fault in chosen}
        for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.STOP_BEFORE, Fault.STOP_AFTER):
            if fault in rates:
                rates[fault] = min(rates[fault] / 4, 0.004)
        victims = draw.choice(
            (("cc", "alloc"), ("cc",), ("cc", "alloc", "agent"), ("cc", "alloc", "agent", "k"))
        )
        return cls(rates, victims)


def weight_of(call: str, what: str) -> float:
    """How likely a call is harmed: what runs every second, less; what decides, more."""
    if ".tick." in what or what.startswith(("leases", "domain.")):
        return 0.1
    return 2.0 if call.rpartition(".")[2] in _WRITES else 0.3


@dataclass(frozen=True, slots=True)
class TriggeredFault:
    """The next such call finds its process asleep right before it is sent."""

    processes: str
    """Prefix of their names."""
    call: str
    what: str
    """Prefix of what the call is about."""
    sleep_s: float
    then: Callable[[str], Coroutine[Any, Any, None]]
    """What happens meanwhile, told what the call is about."""
    wakes_when_void: bool = False
    """It wakes as soon as somebody has voided the claim that it is about."""
    fault: Fault = Fault.STOP_BEFORE
    """Or the call alone is on its way for so long."""

    def meets(self, process: str, call: str, what: str) -> bool:
        """Whether the call walks into it."""
        return (
            call == self.call and process.startswith(self.processes) and what.startswith(self.what)
        )
