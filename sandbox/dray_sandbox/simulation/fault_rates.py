"""Rates of faults per call, and a fault that a particular call triggers."""

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from dray_sandbox.simulation.faults import Fault

_WRITES = ("patch", "update", "create", "bind", "delete", "append", "publish", "ack")


@dataclass(slots=True)
class FaultRates:
    """The rate of each fault per call, drawn from the seed."""

    rates: dict[Fault, float]
    victims: tuple[str, ...]
    """Prefixes of the processes' names."""

    @classmethod
    def drawn(cls, draw: random.Random) -> "FaultRates":
        """Draw some faults and some processes."""
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
    """Weight of a call's faults: less for calls of every second, more for writes."""
    if ".tick." in what or what.startswith(("leases", "domain.")):
        return 0.1
    return 2.0 if call.rpartition(".")[2] in _WRITES else 0.3


@dataclass(frozen=True, slots=True)
class TriggeredFault:
    """A fault of the next matching call: its process is stopped right before it is sent."""

    processes: str
    """Prefix of their names."""
    call: str
    what: str
    """Prefix of what the call is about."""
    sleep_s: float
    then: Callable[[str], Coroutine[Any, Any, None]]
    """What happens meanwhile; gets what the call is about."""
    wakes_when_void: bool = False
    """The process continues once the call's claim is voided."""
    fault: Fault = Fault.STOP_BEFORE
    """Or only the call is delayed."""

    def meets(self, process: str, call: str, what: str) -> bool:
        """Whether the call triggers it."""
        return (
            call == self.call and process.startswith(self.processes) and what.startswith(self.what)
        )
