"""What happens in one run: pods that come and go, processes that die or sleep. Pure.

A seed names a plan, not an outcome: what the processes do at those moments is theirs.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

STORM_S = 6.0
"""In so many seconds pods come and faults begin."""
PAUSES_S = (2.0, 2.0, 3.5)
"""A tenth of 20 s and of 35 s: longer than the leases, which are divided by ten as well."""
LONGEST_AWAY_S = 2.0
_CHANGES = 60
"""Fewer than the claims of a run go through."""
NATS = "nats-server"
NAMESPACE, TENANT = "default", "tenant"
UNTOUCHED = frozenset({"etcd"})
"""Processes that are not Kubernetes' or dray's own, and are trusted."""
DEDICATED, SHARED = "my-gpu-pool", "default"
POOLS = (DEDICATED, SHARED)
CARDS_PER_NODE = 3

REFUSED = (
    "patch a claim",
    "patch a claim's status",
    "patch a pod",
    "bind a pod",
    "create a template",
    "create a BindRequest",
)
"""Requests that fail for one namespace, as the simulation calls them."""
TENANT_PODS = 3
"""Of that namespace."""

Kind = Literal["kill", "pause", "empty", "refuse"]


@dataclass(frozen=True, slots=True)
class PodWish:
    """A pod that a user creates, and deletes ``life_s`` after it was created."""

    name: str
    at_s: float
    pool: str
    cards: int
    tflops: int
    vram_gib: int
    life_s: float | None
    """None: until the end."""
    namespace: str = NAMESPACE


@dataclass(frozen=True, slots=True)
class StackFault:
    """Something done to one process, undone after ``for_s``; or requests of one kind that fail for
    one namespace until all else is quiet."""

    at_s: float
    kind: Kind
    target: str
    for_s: float
    at_change: int = 0
    """Begins already when so many changes of claims were seen: amid the work on one."""

    def __str__(self) -> str:
        said = {
            "kill": f"kill -9 {self.target}, back after {self.for_s:.1f} s",
            "pause": f"SIGSTOP {self.target}, SIGCONT after {self.for_s:.1f} s",
            "refuse": f"500 to whoever is to {self.target} of the tenant, until it is quiet",
            "empty": f"kill -9 {self.target}, back on an empty store after {self.for_s:.1f} s",
        }
        sooner = f", or at change {self.at_change} of a claim" if self.at_change else ""
        return f"{self.at_s:6.2f} s{sooner}  {said[self.kind]}"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One run."""

    seed: int
    wishes: tuple[PodWish, ...]
    faults: tuple[StackFault, ...]
    """Of different processes, by the moment they begin."""
    at_the_end: StackFault | None
    """Begins when everything is deleted; ``at_s`` counts from there."""
    freed: float
    """Share of the running pods that are deleted when others wait for their cards."""

    def lines(self) -> list[str]:
        """For people."""
        last = [f"{self.at_the_end} (from when all is deleted)"] if self.at_the_end else []
        return [*map(str, self.faults), *last]


def draw(seed: int, processes: Iterable[str]) -> FaultPlan:
    """The plan of a seed for a stack of these processes.

    The first fault goes round: as many seeds as there are faults have each once.
    """
    dice = random.Random(f"faults-{seed}")
    rounds = possible(processes)
    first = _fault(dice, *rounds[seed % len(rounds)], at_s=dice.uniform(0.3, STORM_S * 0.7))
    passing = [one for one in rounds if one[0] != "refuse"]
    faults = [first]
    for _ in range(dice.choice((1, 1, 2, 3))):
        kind, target = dice.choice(passing)
        at_s, at_change = dice.uniform(0.3, STORM_S), 0
        match dice.choice(("overlap", "overlap", "amid", "any")):
            case "overlap":
                at_s = dice.uniform(first.at_s, first.at_s + first.for_s)
            case "amid":
                at_s, at_change = STORM_S, dice.randint(1, _CHANGES)
        if target not in {fault.target for fault in faults}:
            faults.append(_fault(dice, kind, target, at_s=at_s, at_change=at_change))
    ending = _fault(dice, *dice.choice(passing), at_s=dice.uniform(0.0, 0.5))
    wishes = [_wish(dice, f"pod-{number}") for number in range(dice.randint(10, 16))]
    if any(fault.kind == "refuse" for fault in faults):
        wishes += [
            replace(_wish(dice, f"{TENANT}-{number}"), namespace=TENANT)
            for number in range(TENANT_PODS)
        ]
    return FaultPlan(
        seed,
        tuple(wishes),
        tuple(sorted(faults, key=lambda fault: fault.at_s)),
        ending if dice.random() < 0.4 else None,
        dice.uniform(0.3, 0.8),
    )


def possible(processes: Iterable[str]) -> list[tuple[Kind, str]]:
    """Every fault there is: each process killed and stopped, NATS also emptied, each kind of
    request refused; these last ones are spread among the others."""
    names = sorted(processes)
    found: list[tuple[Kind, str]] = [("kill", name) for name in names]
    found.insert(len(names) // 2, ("empty", NATS))
    found += [("pause", name) for name in names]
    apart = len(found) // len(REFUSED) + 1
    for number, target in enumerate(REFUSED):
        found.insert(number * (apart + 1), ("refuse", target))
    return found


def _fault(
    dice: random.Random, kind: Kind, target: str, *, at_s: float, at_change: int = 0
) -> StackFault:
    match kind:
        case "pause":
            for_s = dice.choice(PAUSES_S)
        case "refuse":
            at_s, at_change, for_s = dice.choice((0.0, at_s)), 0, STORM_S
        case _:
            for_s = dice.uniform(0.0, LONGEST_AWAY_S)
    return StackFault(round(at_s, 2), kind, target, round(for_s, 2), at_change)


def _wish(dice: random.Random, name: str) -> PodWish:
    cards, tflops = dice.choice(((1, 50), (1, 150), (1, 200), (2, 150), (3, 100), (3, 300)))
    return PodWish(
        name,
        round(dice.uniform(0.0, STORM_S * 0.8), 2),
        dice.choice(POOLS),
        cards,
        tflops,
        dice.choice((4, 10, 20)),
        round(dice.uniform(0.2, 4.0), 2) if dice.random() < 0.4 else None,
    )
