"""A cluster of honest users on virtual time, a tenant in it, and what must hold meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.adversary.admission import User
from tests.adversary.tenant import NAMESPACE, Action, Tenant

from dray.api.errors import DrayError
from dray.api.groups import GROUP_NAME_KEYS
from dray.kube.memory_store import Event
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    POOLS,
    TEMPLATES,
    Object,
)
from tools.simulation.cluster import DEDICATED, SHARED, SPARE, create_cluster, gpu_pod
from tools.simulation.invariants import WatchedStore
from tools.simulation.run import Size, simulate
from tools.simulation.world import SimulatedWorld

NODE_POOLS = {"n1": DEDICATED, "n2": SPARE, "n3": SHARED, "n4": SHARED}
"""There is no spare pool before the administrator makes it."""
RUNNING = ("cc-1", "alloc-1", *(f"agent-{node}" for node in NODE_POOLS))
KUBERNETES = ("k-claims", "k-scheduler", "k-allocates", "k-lets", "k-garbage")
HONEST = (("team-a", DEDICATED), ("team-c", SHARED))
GRACE_S = 10.0
"""How long a decision may be on its way after a namespace was removed."""
_SETTLED_S, _PATIENCE_S = 15.0, 90.0


@dataclass
class Watcher:
    """Sees every change of every object, before anybody else does."""

    now_s: Callable[[], float]
    quiet_since: bool = False
    """From here on nothing changes in the honest namespaces, but by their own hands."""
    protected: set[str] = field(default_factory=set)
    tightened_at_s: float | None = None
    violations: list[str] = field(default_factory=list)

    def see(self, event: Event) -> None:
        """One change."""
        obj = event.after or event.before
        assert obj is not None
        metadata = obj["metadata"]
        is_shared = event.resource == POOLS and metadata["name"] == SHARED
        if is_shared and obj["spec"].get("allowedNamespaces"):
            self.tightened_at_s = self.tightened_at_s or self.now_s()
        if metadata["uid"] in self.protected:
            self.violations.append(
                f"{event.resource.plural} {metadata['namespace']}/{metadata['name']} changed"
            )
        if event.resource == CLAIMS and metadata["namespace"] == NAMESPACE:
            self._tenants_claim(event)

    def _tenants_claim(self, event: Event) -> None:
        if not (nodes := _nodes_of(event.after)) or nodes == _nodes_of(event.before):
            return
        assert event.after is not None
        name, pools = event.after["metadata"]["name"], {NODE_POOLS[node] for node in nodes}
        late = self.tightened_at_s is not None and self.now_s() > self.tightened_at_s + GRACE_S
        if pools - {SHARED} or late:
            self.violations.append(f"claim {NAMESPACE}/{name} got devices of {sorted(pools)}")


def _nodes_of(claim: Object | None) -> set[str]:
    allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
    return {one["pool"] for one in (allocation.get("devices") or {}).get("results") or ()}


def attack(actions: Sequence[Action], *, admission: bool = True) -> list[str]:
    """What was violated by these actions, one after the other."""

    async def script(world: SimulatedWorld, size: Size) -> list[str]:
        return await _Attack(world, admission=admission).run(actions)

    return simulate(1, Size(ignore_alarms=True), script=script).failures


class _Attack:
    def __init__(self, world: SimulatedWorld, *, admission: bool) -> None:
        self._world = world
        self._watcher = Watcher(world.loop.time)
        self._tenant = Tenant(world.kube, admission=admission)
        self._count = 0

    async def run(self, actions: Sequence[Action]) -> list[str]:
        world, store = self._world, self._world.kube.store
        await create_cluster(world.kube, NODE_POOLS)
        for name in ("team-a", NAMESPACE, "team-c"):
            await world.kube.create(NAMESPACES, {"metadata": {"name": name}})
        only = {"spec": {"allowedNamespaces": ["team-a"]}}
        await world.kube.patch(POOLS, DEDICATED, only)
        assert isinstance(store, WatchedStore)
        judged = store.invariants

        def see(event: Event) -> None:
            judged(event)
            self._watcher.see(event)

        store.invariants = see
        world.faults_enabled = False
        for name in (*RUNNING, *KUBERNETES):
            world.start(name)
        await self._honest_pods()
        if late := await self._waiting():
            return [f"before anything was tried: {one}" for one in late]
        await asyncio.sleep(_SETTLED_S)
        self._watcher.protected = {
            obj["metadata"]["uid"]
            for resource in (PODS, CLAIMS, TEMPLATES, BIND_REQUESTS, POD_GROUPS)
            for (namespace, _), obj in store.of(resource).items()
            if namespace in dict(HONEST)
        }
        for action in actions:
            try:
                await self._tenant.perform(action)
            except DrayError as error:
                world.trace.record("TENANT", f"{action.what}: {error}")
            await asyncio.sleep(action.rest_s)
        await self._honest_pods()
        late = await self._waiting()
        await asyncio.sleep(_SETTLED_S)
        # The judge knows no claims that pods share; what it says of devices holds for all.
        sales = [one for one in world.invariants.violations if "DOUBLE ALLOCATION" in one]
        return [*late, *self._watcher.violations, *sales, *world.unexpected_exits]

    async def _honest_pods(self) -> None:
        """A pod in each pool, and a group of two pods on shared nodes."""
        for namespace, pool in HONEST:
            await self._honest_pod(f"honest-{self._count}", namespace, pool)
        namespace, pool = HONEST[-1]
        group = {"metadata": {"name": f"g{self._count}"}, "spec": {"minMember": 2}}
        await self._world.kube.create(POD_GROUPS, group, namespace)
        for number in range(2):
            name = f"{group['metadata']['name']}-{number}"
            await self._honest_pod(name, namespace, pool, group["metadata"]["name"])
        self._count += 1

    async def _honest_pod(self, name: str, namespace: str, pool: str, group: str = "") -> None:
        pod = gpu_pod(name, pool, tflops=50, vram_gib=4, count=1, life_s=None)
        pod["metadata"]["namespace"] = namespace
        if group:
            pod["metadata"]["annotations"][GROUP_NAME_KEYS[0]] = group
        await User(self._world.kube, "alice", namespace, admission=True).create(PODS, pod)

    async def _waiting(self) -> list[str]:
        """Honest pods that don't run after a while."""
        end_s = self._world.loop.time() + _PATIENCE_S
        while True:
            waiting = [
                f"pod {namespace}/{name} does not run"
                for (namespace, name), obj in self._world.kube.store.of(PODS).items()
                if namespace in dict(HONEST) and obj["status"].get("phase") != "Running"
            ]
            if not waiting or self._world.loop.time() > end_s:
                return waiting
            await asyncio.sleep(0.5)
