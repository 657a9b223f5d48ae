"""Scenarios as users apply them, each in a namespace and a pool of its own on a local stack."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tests.scenarios import objects
from tests.scenarios.expectations import check
from tests.scenarios.objects import Scenario

from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NAMESPACES,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    POLICIES,
    POOLS,
    PRIORITY_CLASSES,
    QUEUES,
    TEMPLATES,
    AlreadyExistsError,
    Kube,
    Object,
    RefusedError,
    Resource,
)

WITHIN_S = 60.0
EVERY_S = 0.25
_READ = (PODS, CLAIMS, POD_GROUPS, BIND_REQUESTS)
_NATIVE = (NATIVE_POD_GROUPS,)
"""Read as well where the API server serves them."""


class StackReader:
    """Reads the objects of all scenarios of a stack at once."""

    def __init__(self, kube: Kube, *, native: bool = False) -> None:
        """``native``: whether the API server serves PodGroups of Kubernetes."""
        self._kube = kube
        self._kinds = (*_READ, *_NATIVE) if native else _READ
        self._news = asyncio.Condition()
        self._objects: dict[tuple[str, str], list[Object]] = {}
        self._version = 0

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            found: dict[tuple[str, str], list[Object]] = {}
            for resource in self._kinds:
                for obj in (await self._kube.list(resource)).objects:
                    key = resource.plural, obj["metadata"]["namespace"]
                    found.setdefault(key, []).append(obj)
            async with self._news:
                self._objects = found
                self._version += 1
                self._news.notify_all()
            await asyncio.sleep(EVERY_S)

    def of(self, resource: Resource, namespace: str) -> list[Object]:
        """The objects of a kind as they were read last."""
        return self._objects.get((resource.plural, namespace), [])

    async def until(self, condition: Callable[[], bool]) -> bool:
        """Wait until a condition is true of what is read from now on, 60 s at most."""
        since = self._version + 1
        try:
            async with asyncio.timeout(WITHIN_S), self._news:
                await self._news.wait_for(lambda: self._version > since and condition())
        except TimeoutError:
            return False
        return True


class StackScenario:
    """One scenario on a running stack."""

    def __init__(self, kube: Kube, reader: StackReader, scenario: Scenario, pool: str) -> None:
        self._kube = kube
        self._reader = reader
        self._scenario = scenario
        self._pool = pool
        self._namespace = scenario.name
        self.refusals: dict[str, str] = {}

    async def run(self) -> list[str]:
        """What differs from what the scenario expects; empty: nothing does."""
        await self._kube.create(NAMESPACES, {"metadata": {"name": self._namespace}})
        spec: dict[str, Any] = {"dra": {"enable": True}}
        spec["placement"] = {"mode": self._scenario.placement}
        policy = {"metadata": {"name": self._pool}, "spec": spec}
        await self._kube.create(POLICIES, policy)
        spec = {"schedulingConfigTemplate": self._pool, "dedicated": not self._scenario.shared}
        spec["default"] = self._scenario.default_pool
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
            for pod in self._of(PODS)
            if pod["spec"].get("nodeName")
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        )

    def nodes(self) -> dict[str, list[str]]:
        """See ``ObservedCluster``."""
        found: dict[str, list[str]] = {}
        for pod in self._of(PODS):
            if node := pod["spec"].get("nodeName"):
                found.setdefault(node, []).append(pod["metadata"]["name"])
        return found

    def status(self, name: str) -> dict[str, Any]:
        """See ``ObservedCluster``."""
        return (self._named(self._kind_of(name), name).get("status")) or {}

    def why(self, name: str) -> str:
        """See ``ObservedCluster``."""
        status = self._named(BIND_REQUESTS, name).get("status") or {}
        return str(status.get("explanation") or "")

    def holds(self, prefix: str) -> int:
        """See ``ObservedCluster``."""
        return sum(
            len(claim["status"]["allocation"]["devices"]["results"])
            for claim in self._of(CLAIMS)
            if claim["metadata"]["name"].startswith(prefix)
            and (claim.get("status") or {}).get("allocation")
        )

    def consumers(self, prefix: str) -> list[str]:
        """See ``ObservedCluster``."""
        return sorted(
            one["resource"]
            for claim in self._of(CLAIMS)
            if claim["metadata"]["name"].startswith(prefix)
            for one in (claim.get("status") or {}).get("reservedFor") or ()
        )

    def _of(self, resource: Resource) -> list[Object]:
        return self._reader.of(resource, self._namespace)

    def _named(self, resource: Resource, name: str) -> Object:
        return next((one for one in self._of(resource) if one["metadata"]["name"] == name), {})

    async def _do(self, verb: str, what: Any) -> None:
        kube, namespace = self._kube, self._namespace
        match verb:
            case "queue":
                made = objects.queue(what)
                await kube.create(QUEUES, made)
                await self._set_queue(what["name"], made["status"]["state"])
            case "group":
                await self._create(POD_GROUPS, objects.group(what))
            case "native":
                await self._create(NATIVE_POD_GROUPS, objects.native(what))
            case "claim-template":
                await self._create(TEMPLATES, objects.claim_template(what))
            case "pods":
                made = list(objects.pods(what, self._pool))
                for pod in made:
                    await self._create(PODS, await self._with_class(pod))
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
            case "end":
                for name, phase in what.items():
                    ended = {"status": {"phase": phase}}
                    await kube.patch(PODS, name, ended, namespace, subresource="status")
            case "change" if "state" in what:
                await self._set_queue(what["name"], what["state"])
            case "change" if what.get("deleted"):
                await kube.delete(self._kind_of(what["name"]), what["name"], namespace)
            case "change":
                patch = {"spec": what["spec"]}
                await kube.patch(self._kind_of(what["name"]), what["name"], patch, namespace)
            case _:
                raise ValueError(f"step {verb} is for pure decisions alone")

    async def _set_queue(self, name: str, state: str) -> None:
        """Open or close a Queue, as its administrator does; queues are the cluster's."""
        status = {"status": {"state": state}}
        await self._kube.patch(QUEUES, name, status, subresource="status")

    async def _with_class(self, pod: Object) -> Object:
        """The pod with a PriorityClass in the place of its priority."""
        spec = dict(pod["spec"])
        if (value := spec.pop("priority", None)) is None:
            return pod
        spec["priorityClassName"] = name = f"scenario-{value}"
        with suppress(AlreadyExistsError):
            await self._kube.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        return pod | {"spec": spec}

    def _kind_of(self, group: str) -> Resource:
        """The kind of a group of the scenario."""
        natives = [one["native"]["name"] for one in self._scenario.steps if "native" in one]
        return NATIVE_POD_GROUPS if group in natives else POD_GROUPS

    def _gate_of(self, name: str) -> str:
        pods = [one["pods"] for one in self._scenario.steps if "pods" in one]
        return next(one["gate"] for one in pods if name in objects.names_of(one))

    async def _create(self, resource: Resource, obj: Object) -> None:
        metadata = obj["metadata"] | {"namespace": self._namespace}
        try:
            await self._kube.create(resource, obj | {"metadata": metadata}, self._namespace)
        except RefusedError as error:
            self.refusals[metadata["name"]] = str(error)

    async def _until_known(self, names: list[str]) -> None:
        """Wait until each pod has a node, or a reason why it waits."""

        def all_known() -> bool:
            running = self.running()
            return all(name in running or name in self.refusals or self.why(name) for name in names)

        await self._reader.until(all_known)

    async def _expect(self, expected: Mapping[str, Any]) -> list[str]:
        found: list[str] = []

        def is_so() -> bool:
            found[:] = check(self, expected)
            return not found

        await self._reader.until(is_so)
        return found
