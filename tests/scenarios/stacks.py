"""Scenarios as users apply them: objects in a namespace and a pool of their own on a local stack."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.scenarios import objects
from tests.scenarios.expectations import check
from tests.scenarios.objects import Scenario

from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    POLICIES,
    POOLS,
    Kube,
    NotFoundError,
    Object,
    RefusedError,
)

WITHIN_S = 60.0


class StackScenario:
    """One scenario on a running stack."""

    def __init__(self, kube: Kube, scenario: Scenario, pool: str) -> None:
        self._kube = kube
        self._scenario = scenario
        self._pool = pool
        self._namespace = scenario.name
        self._pods: list[Object] = []
        self._claims: list[Object] = []
        self._groups: dict[str, Object] = {}
        self._waits: dict[str, str] = {}
        self.refusals: dict[str, str] = {}

    async def run(self) -> list[str]:
        """What differs from what the scenario expects; empty: nothing does."""
        await self._kube.create(NAMESPACES, {"metadata": {"name": self._namespace}})
        policy = {"metadata": {"name": self._pool}, "spec": {"dra": {"enable": True}}}
        await self._kube.create(POLICIES, policy)
        spec = {"schedulingConfigTemplate": self._pool, "dedicated": not self._scenario.shared}
        await self._kube.create(POOLS, {"metadata": {"name": self._pool}, "spec": spec})
        for number, step in enumerate(self._scenario.steps):
            verb, what = next(iter(step.items()))
            if verb != "expect":
                await self._do(verb, what)
            elif problems := await self._expect(what):
                return [f"{self._scenario.name}, step {number}: {one}" for one in problems]
        return []

    def running(self) -> list[str]:
        """See ``ObservedCluster``."""
        return sorted(
            pod["metadata"]["name"]
            for pod in self._pods
            if pod["spec"].get("nodeName")
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        )

    def nodes(self) -> dict[str, list[str]]:
        """See ``ObservedCluster``."""
        found: dict[str, list[str]] = {}
        for pod in self._pods:
            if node := pod["spec"].get("nodeName"):
                found.setdefault(node, []).append(pod["metadata"]["name"])
        return found

    def status(self, name: str) -> dict[str, Any]:
        """See ``ObservedCluster``."""
        return (self._groups.get(name) or {}).get("status") or {}

    def why(self, name: str) -> str:
        """See ``ObservedCluster``."""
        return self._waits.get(name, "")

    def holds(self, prefix: str) -> int:
        """See ``ObservedCluster``."""
        return sum(
            len(claim["status"]["allocation"]["devices"]["results"])
            for claim in self._claims
            if claim["metadata"]["name"].startswith(prefix)
            and (claim.get("status") or {}).get("allocation")
        )

    async def _do(self, verb: str, what: Any) -> None:
        kube, namespace = self._kube, self._namespace
        match verb:
            case "group":
                await self._create(POD_GROUPS, objects.group(what))
            case "pods":
                made = list(objects.pods(what, self._pool))
                for pod in made:
                    await self._create(PODS, pod)
                if what.get("gpus", 1) and not what.get("gate"):
                    await self._until_known([pod["metadata"]["name"] for pod in made])
            case "lift":
                for name in what:
                    pod = await kube.get(PODS, name, namespace)
                    gate = self._gate_of(name)
                    kept = [one for one in pod["spec"]["schedulingGates"] if one["name"] != gate]
                    gates = {"spec": {"schedulingGates": kept}}
                    await kube.patch(PODS, name, gates, namespace)
            case "delete":
                for name in what:
                    await kube.delete(PODS, name, namespace, grace_period_s=0)
            case "change" if what.get("deleted"):
                await kube.delete(POD_GROUPS, what["name"], namespace)
            case "change":
                await kube.patch(POD_GROUPS, what["name"], {"spec": what["spec"]}, namespace)
            case _:
                raise ValueError(f"step {verb} is for pure decisions alone")

    def _gate_of(self, name: str) -> str:
        pods = [one["pods"] for one in self._scenario.steps if "pods" in one]
        return next(one["gate"] for one in pods if name in objects.names_of(one))

    async def _create(self, resource: Any, obj: Object) -> None:
        metadata = obj["metadata"] | {"namespace": self._namespace}
        try:
            await self._kube.create(resource, obj | {"metadata": metadata}, self._namespace)
        except RefusedError as error:
            self.refusals[metadata["name"]] = str(error)

    async def _until_known(self, names: list[str]) -> None:
        """Wait until each pod has a node, or the allocator has said why it waits."""

        def all_known() -> bool:
            known = (*self.running(), *self._waits, *self.refusals)
            return all(name in known for name in names)

        await self._until(all_known)

    async def _expect(self, expected: Mapping[str, Any]) -> list[str]:
        found: list[str] = []

        def is_so() -> bool:
            found[:] = check(self, expected)
            return not found

        await self._until(is_so)
        return found

    async def _until(self, condition: Any) -> bool:
        """Read until a condition is true, 60 s at most; whether it is."""
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    await self._read()
                    if condition():
                        return True
                    await asyncio.sleep(0.2)
        except TimeoutError:
            return False

    async def _read(self) -> None:
        kube, namespace = self._kube, self._namespace
        self._pods = list((await kube.list(PODS, namespace)).objects)
        self._claims = list((await kube.list(CLAIMS, namespace)).objects)
        groups = (await kube.list(POD_GROUPS, namespace)).objects
        self._groups = {one["metadata"]["name"]: one for one in groups}
        requests = (await kube.list(BIND_REQUESTS, namespace)).objects
        self._waits = {
            one["metadata"]["name"]: str((one.get("status") or {}).get("explanation") or "")
            for one in requests
            if (one.get("status") or {}).get("explanation")
        }
