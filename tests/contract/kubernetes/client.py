"""A client of one API server, for requests that the services never make, too."""

import asyncio
import itertools
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
from tests.conformance.left_out import only_where

from dray.messages.facts import ClusterObserved

GROUPS = {
    "daemonsets": "apps",
    "deployments": "apps",
    "replicasets": "apps",
    "statefulsets": "apps",
    "cronjobs": "batch",
    "jobs": "batch",
    "resourceclaims": "resource.k8s.io",
    "resourceclaimtemplates": "resource.k8s.io",
    "resourceslices": "resource.k8s.io",
    "deviceclasses": "resource.k8s.io",
    "leases": "coordination.k8s.io",
    "priorityclasses": "scheduling.k8s.io",
    "customresourcedefinitions": "apiextensions.k8s.io",
    "mutatingwebhookconfigurations": "admissionregistration.k8s.io",
    "validatingwebhookconfigurations": "admissionregistration.k8s.io",
    "validatingadmissionpolicies": "admissionregistration.k8s.io",
    "validatingadmissionpolicybindings": "admissionregistration.k8s.io",
}
CLUSTER_SCOPED = {
    "namespaces",
    "nodes",
    "resourceslices",
    "deviceclasses",
    "priorityclasses",
    "customresourcedefinitions",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
}
SANDBOX_MINOR = 36
"""The x of the Kubernetes 1.x that the sandbox's API server stands for."""
PATCH_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Refused(AssertionError):
    """An answer with an error code: the Status is `.status`."""

    def __init__(self, what: str, status: dict[str, Any]) -> None:
        super().__init__(f"{what}: {status}")
        self.status = status
        self.code = status["code"]
        self.reason = status.get("reason", "")
        self.message = status["message"]

    def causes(self) -> list[tuple[str, str]]:
        found = (self.status.get("details") or {}).get("causes") or []
        return [(cause.get("field", ""), cause["message"]) for cause in found]

    def starts(self, expected: list[str], minor: int = SANDBOX_MINOR) -> list[str]:
        """The causes as texts, each cut to the length of the expected: syntax errors are in full.

        Other minors than the sandbox's word some differently: there the field and the type count.
        """
        found = [f"{field}: {message}" for field, message in self.causes()]
        if minor != SANDBOX_MINOR:
            pairs = itertools.zip_longest(found, expected)
            return [wanted if _alike(seen, wanted) else seen for seen, wanted in pairs if seen]
        lengths = [len(text) for text in expected] + [1000] * len(found)
        return [text[:length] for text, length in zip(found, lengths, strict=False)]


def _alike(seen: str, wanted: str | None) -> bool:
    """Do two causes name the same field and type?"""
    return wanted is not None and _field_and_type(seen) == _field_and_type(wanted)


def _field_and_type(cause: str) -> list[str]:
    return cause.split(":", 2)[:2]


class Api:
    """A thin HTTPS client; every test has a namespace of its own."""

    def __init__(self, session: aiohttp.ClientSession, target: Any, namespace: str) -> None:
        self._session = session
        self.target = target
        self.minor: int = target.minor
        self.keeps: ClusterObserved = target.cluster
        self.keeps_stamps: bool = self.keeps.allocation_timestamp or self.minor == 35
        """Whether a claim keeps when it was allocated. 1.35 does without the gate, which a status
        would tell and no dry-run can; dray then writes none, and nothing depends on it."""
        self.keeps_tolerations: bool = self.keeps.device_taints or self.minor == 34
        """Whether a claim keeps its tolerations: 1.34 does without the gate."""
        self.namespace = namespace
        self.warnings: list[str] = []
        self._numbers = itertools.count(1)
        self.cleanup: list[str] = []

    def unique(self, prefix: str) -> str:
        """A name for cluster-scoped objects that no other test uses."""
        return f"{prefix}-{self.namespace}-{next(self._numbers)}"

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        if "." in plural.split("/")[0]:
            group_version, _, plural = plural.rpartition("/")
            base = f"/apis/{group_version}"
        else:
            group = GROUPS.get(plural)
            base = f"/apis/{group}/v1" if group else "/api/v1"
        if plural not in CLUSTER_SCOPED and not plural.startswith("cluster"):
            base += f"/namespaces/{self.namespace}"
        return "/".join(filter(None, [f"{base}/{plural}", name, subresource]))

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "",
        accept: str = "application/json",
        **query: Any,
    ) -> Any:
        headers = {"Authorization": f"Bearer {self.target.token}", "Accept": accept}
        data = None
        if body is not None:
            headers["Content-Type"] = kind or "application/json"
            data = json.dumps(body, separators=(",", ":"))
        async with self._session.request(
            method, self.target.url + path, headers=headers, params=query, data=data
        ) as response:
            self.warnings = response.headers.getall("Warning", [])
            if response.content_type == "text/plain":
                text = await response.text()
                raise Refused(f"{method} {path}", {"code": response.status, "message": text})
            answer = await response.json()
            if response.status >= 400:
                raise Refused(f"{method} {path}", answer)
            return answer

    async def create(self, plural: str, body: Any, **query: Any) -> Any:
        made = await self.call("POST", self.path(plural), body, **query)
        name = made["metadata"]["name"] if "metadata" in made else ""
        if plural in CLUSTER_SCOPED and "dryRun" not in query:
            self.cleanup.append(self.path(plural, name))
        return made

    async def get(self, plural: str, name: str = "", **query: Any) -> Any:
        return await self.call("GET", self.path(plural, name), **query)

    async def names(self, plural: str, **query: Any) -> list[str]:
        found = await self.get(plural, **query)
        return [item["metadata"]["name"] for item in found["items"]]

    async def put(self, plural: str, body: Any, subresource: str = "", **query: Any) -> Any:
        path = self.path(plural, body["metadata"]["name"], subresource)
        return await self.call("PUT", path, body, **query)

    async def patch(
        self,
        plural: str,
        name: str,
        body: Any,
        subresource: str = "",
        kind: str = "merge",
        **query: Any,
    ) -> Any:
        path = self.path(plural, name, subresource)
        return await self.call("PATCH", path, body, kind=PATCH_TYPES[kind], **query)

    async def delete(self, plural: str, name: str, body: Any = None, **query: Any) -> Any:
        return await self.call("DELETE", self.path(plural, name), body, **query)

    def needs_kept(self, value: Any) -> None:
        """Skip the test where the server drops a field of `value`: there is nothing to refuse."""
        name = self.target.dropped(value)
        only_where(not name, f"its API server drops {name}")

    async def bind(self, name: str, node: str, **metadata: Any) -> Any:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return await self.call("POST", self.path("pods", name, "binding"), body)

    async def until(self, holds: Callable[[], Awaitable[bool]], limit_s: float = 60) -> None:
        """Ask again and again until something holds; fails after `limit_s`."""
        async with asyncio.timeout(limit_s):
            while not await holds():  # noqa: ASYNC110 - a server has no event to wait for
                await asyncio.sleep(0.05)

    async def gone(self, plural: str, name: str) -> None:
        """Return once an object is gone."""

        async def missing() -> bool:
            try:
                await self.get(plural, name)
            except Refused as error:
                return bool(error.code == 404)
            return False

        await self.until(missing)

    async def watch(self, plural: str, **query: Any) -> AsyncIterator[dict[str, Any]]:
        """Events until the server ends the watch."""
        headers = {"Authorization": f"Bearer {self.target.token}"}
        async with self._session.get(
            self.target.url + self.path(plural),
            headers=headers,
            params={"watch": "true", **query},
        ) as response:
            if response.status != 200:
                raise Refused("watch", await response.json())
            async for line in response.content:
                yield json.loads(line)

    def pod(self, name: str = "", **spec: Any) -> dict[str, Any]:
        """A pod that no scheduler touches."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name} if name else {},
            "spec": {
                "schedulerName": "nobody",
                "containers": [{"name": "c", "image": "example.com/image:1"}],
                **spec,
            },
        }

    def claim(self, name: str, *requests: Any, **devices: Any) -> dict[str, Any]:
        wanted = list(requests) or [self.request("gpu")]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": wanted, **devices}},
        }

    def request(self, name: str, **exactly: Any) -> dict[str, Any]:
        return {"name": name, "exactly": {"deviceClassName": "gpus.example.com", **exactly}}

    def allocation(self, request: str = "gpu", device: str = "gpu-0") -> dict[str, Any]:
        result = {
            "request": request,
            "driver": "gpus.example.com",
            "pool": "node-1",
            "device": device,
        }
        return {"devices": {"results": [result]}}

    def user(self, name: str) -> dict[str, Any]:
        # Not a pod: a controller takes reservations of pods that don't exist away.
        uid = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
        return {"apiGroup": "example.com", "resource": "jobs", "name": name, "uid": uid}
