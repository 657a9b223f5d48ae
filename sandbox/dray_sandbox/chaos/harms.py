"""How often calls are harmed, and which one call in particular."""

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from dray_sandbox.chaos.line import Harm

_WRITES = ("patch", "update", "create", "bind", "delete", "append", "publish", "ack")


@dataclass(slots=True)
class Mix:
    """How often a call meets each harm; a seed draws its own mix."""

    rates: dict[Harm, float]
    victims: tuple[str, ...]
    """Prefixes of the processes' names."""

    @classmethod
    def drawn(cls, draw: random.Random) -> "Mix":
        """Some harms, some victims."""
        harms: list[Harm] = [harm for harm in Harm if harm is not Harm.NONE]
        chosen = draw.sample(harms, draw.randint(1, len(harms)))
        scale = draw.choice((0.002, 0.01, 0.03, 0.08))
        rates: dict[Harm, float] = {harm: scale * draw.uniform(0.2, 1.0) for harm in chosen}
        for harm in (Harm.CRASH_BEFORE, Harm.CRASH_AFTER, Harm.STOP_BEFORE, Harm.STOP_AFTER):
            if harm in rates:
                rates[harm] = min(rates[harm] / 4, 0.004)
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
class Ambush:
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
    harm: Harm = Harm.STOP_BEFORE
    """Or the call alone is on its way for so long."""

    def meets(self, process: str, call: str, what: str) -> bool:
        """Whether the call walks into it."""
        return (
            call == self.call and process.startswith(self.processes) and what.startswith(self.what)
        )
