"""Two gangs that compete for the same GPUs, while processes, the bus and the API server fail.

``DRAY_CHAOS_SEEDS=200`` runs that many seeds.
"""

import asyncio
import os
import random
from typing import Final

import pytest

from dray.api.groups import GROUP_NAME_KEYS
from dray.api.names import DRAY_SCHEDULER, GPUPOOL
from dray.kube.ports import CLAIMS, POD_GROUPS, PODS, Object
from tools.simulation.cluster import DEDICATED, TEAM, admit, create_cluster, gpu_pod, plain_pod
from tools.simulation.fault_injector import FaultInjector
from tools.simulation.processes import POOL_OF_NODE
from tools.simulation.run import Size, simulate
from tools.simulation.world import SimulatedWorld

SEEDS = range(int(os.environ.get("DRAY_CHAOS_SEEDS", "4")))
WORKERS: Final = 3
PODS_OF_A_GANG: Final = WORKERS + 1
"""One has no GPU: dray places it, too."""
GPUS: Final = 4
"""Of the pool: there is room for one gang."""
GANGS: Final = ("one", "two")
FAULTS: Final = (
    "kill",
    "kill_all_of_a_kind",
    "stop",
    "stop_all",
    "expire_watches",
    "hold_watches",
    "delay_claim_patch",
    "pause_before_publish",
    "split_brain",
    "lag",
    "bus_away",
    "kube_away",
    "lose_commands",
)
QUIET_WITHIN_S: Final = 900.0
"""Some deadlines of gangs, 300 s each."""


class Gangs:
    """The gangs of a simulation."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._draw = random.Random(f"{world.seed}-gangs")

    async def submit(self) -> None:
        """Create the pods of all gangs, in any order."""
        kube = self._world.kube
        for name in GANGS:
            spec = {"minMember": PODS_OF_A_GANG}
            await kube.create(POD_GROUPS, {"metadata": {"name": name}, "spec": spec}, TEAM)
        pods = [(name, number) for name in GANGS for number in range(PODS_OF_A_GANG)]
        self._draw.shuffle(pods)
        for name, number in pods:
            pod = _worker(f"{name}-{number}") if number else _cpu_task(f"{name}-{number}")
            pod["metadata"]["annotations"][GROUP_NAME_KEYS[0]] = name
            await kube.create(PODS, admit(kube, pod), TEAM)
            await asyncio.sleep(self._draw.choice((0.0, 0.0, 0.1, 3.0)))

    def pods(self, gang: str) -> int:
        """The pods of a gang that exist: some faults delete one."""
        found = self._world.kube.store.of(PODS).values()
        return sum(one["metadata"]["name"].startswith(f"{gang}-") for one in found)

    def bound(self, gang: str) -> int:
        """The pods of a gang that have a node."""
        found = self._world.kube.store.of(PODS).values()
        return sum(
            one["metadata"]["name"].startswith(f"{gang}-") and bool(one["spec"].get("nodeName"))
            for one in found
        )

    def allocated(self, gang: str) -> int:
        """The claims of a gang that are allocated."""
        return len(self._allocations(gang))

    def gpus(self, gang: str) -> int:
        """The GPUs that a gang holds."""
        return sum(len(one["devices"]["results"]) for one in self._allocations(gang))

    def _allocations(self, gang: str) -> list[Object]:
        return [
            allocation
            for one in self._world.kube.store.of(CLAIMS).values()
            if _owner_of(one).startswith(f"{gang}-")
            and (allocation := (one.get("status") or {}).get("allocation"))
        ]

    def violations(self) -> list[str]:
        """Gangs that have a bound pod and one without its claim, and GPUs that are in use twice."""
        halves = [
            f"{self.bound(name)} pods of gang {name} are bound, {self.allocated(name)} allocated"
            for name in GANGS
            if self.bound(name) and self.allocated(name) < self.pods(name)
        ]
        world = self._world
        return [*halves, *world.invariants.violations, *world.alarms(), *world.unexpected_exits]

    def is_quiet(self) -> bool:
        """Whether each gang runs whole or holds nothing, and none that waits could run."""
        free = GPUS - sum(map(self.gpus, GANGS))
        return all(self._is_at_rest(name, free) for name in GANGS)

    def _is_at_rest(self, gang: str, free: int) -> bool:
        if self.bound(gang):
            return self.bound(gang) == self.allocated(gang) == self.pods(gang)
        could_run = self.pods(gang) == PODS_OF_A_GANG and free >= WORKERS
        return not self.allocated(gang) and not could_run


def _worker(name: str) -> Object:
    return gpu_pod(name, DEDICATED, tflops=312, vram_gib=10, count=1, life_s=None)


def _cpu_task(name: str) -> Object:
    pod = plain_pod(name, life_s=None)
    pod["metadata"]["annotations"][GPUPOOL] = DEDICATED
    pod["spec"]["schedulerName"] = DRAY_SCHEDULER
    return pod


def _owner_of(claim: Object) -> str:
    """The name of the pod that a claim is for."""
    return str(claim["metadata"]["ownerReferences"][0]["name"])


async def run(world: SimulatedWorld, size: Size) -> list[str]:
    """What failed; empty: nothing did."""
    await create_cluster(world.kube, POOL_OF_NODE)
    for name in world.processes:
        world.start(name)
    gangs = Gangs(world)
    until_s = size.seconds
    injector = FaultInjector(world, pods=0, faults=size.faults, until_s=until_s, only=size.only)
    work = asyncio.gather(gangs.submit(), injector.run())
    while not work.done():
        await asyncio.sleep(0.1)
        if failures := gangs.violations():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            return failures
    await work
    world.end_faults()
    await injector.repair()
    end_s = world.loop.time() + QUIET_WITHIN_S
    while world.loop.time() < end_s:
        await asyncio.sleep(1.0)
        if failures := gangs.violations():
            return failures
        if gangs.is_quiet():
            return []
    shown = {name: (gangs.bound(name), gangs.allocated(name)) for name in GANGS}
    return [f"gangs did not come to rest: bound and allocated {shown}"]


@pytest.mark.parametrize("seed", SEEDS)
def test_one_gang_runs_whole_and_the_other_holds_nothing(seed: int) -> None:
    size = Size(faults=10, seconds=40.0, only=FAULTS)
    outcome = simulate(seed, size, script=run, keep=400)
    assert not outcome.failures, outcome.report()
