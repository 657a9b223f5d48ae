"""Create a local stack's objects with plain requests to the API."""

import asyncio
import ssl
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml

from dray.api.errors import PermanentError
from dray_sandbox.access import ADMIN, Endpoint

Object = dict[str, Any]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C loader reads custom resources twenty times as fast."""

_PLURALS = {
    "Namespace": "namespaces",
    "Pod": "pods",
    "Node": "nodes",
    "Service": "services",
    "EndpointSlice": "endpointslices",
    "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "CustomResourceDefinition": "customresourcedefinitions",
    "DeviceClass": "deviceclasses",
    "PriorityClass": "priorityclasses",
    "GPUPool": "gpupools",
    "SchedulingConfigTemplate": "schedulingconfigtemplates",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
"""Kinds that a stack installs or reads."""


class ApplyError(PermanentError):
    """The API server refused an object, or did not serve it in time."""


class Installer:
    """Creates or replaces objects as the administrator. Use it as a context manager."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._url = endpoint.url
        self._context = ssl.create_default_context(cafile=str(endpoint.authority))
        self._headers = {"Authorization": f"Bearer {endpoint.tokens[ADMIN]}"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def apply(self, objects: Iterable[Object]) -> None:
        """Create each object, or replace it if it exists.

        Raises:
            ApplyError: the server refused one; its message is in the error.
        """
        for obj in objects:
            await self._apply_one(obj)

    async def wait_until_served(self, crds: Iterable[Object], *, within_s: float = 20.0) -> None:
        """Wait until every custom resource is served."""
        deadline = time.monotonic() + within_s
        for crd in crds:
            spec = crd["spec"]
            for version in (v["name"] for v in spec["versions"] if v.get("served", True)):
                path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1"
                while (await self._request("GET", path))[0] != 200:
                    if time.monotonic() > deadline:
                        raise ApplyError(f"{path} is not served after {within_s:g} s")
                    await asyncio.sleep(0.05)

    async def wait_until_exists(self, obj: Object, *, within_s: float = 20.0) -> None:
        """Wait until a controller has created an object of that kind, namespace and name."""
        deadline = time.monotonic() + within_s
        path = f"{_path(obj)}/{obj['metadata']['name']}"
        while (await self._request("GET", path))[0] != 200:
            if time.monotonic() > deadline:
                raise ApplyError(f"{path} does not exist after {within_s:g} s")
            await asyncio.sleep(0.05)

    async def wait_until_ready(self, node: str, *, within_s: float = 60.0) -> None:
        """Wait until the kubelet has reported that its node is ready."""
        deadline = time.monotonic() + within_s
        while True:
            _, answer = await self._request("GET", f"/api/v1/nodes/{node}")
            conditions = answer.get("status", {}).get("conditions", ())
            known = {condition["type"]: condition for condition in conditions}
            if known.get("Ready", {}).get("status") == "True":
                return
            if time.monotonic() > deadline:
                message = known.get("Ready", {}).get("message", "there is no such condition")
                raise ApplyError(f"node {node} is not ready after {within_s:g} s: {message}")
            await asyncio.sleep(0.05)

    async def wait_until_denied(self, obj: Object, *, by: str, within_s: float = 20.0) -> None:
        """Wait until the server denies a dry run of ``obj`` with a message that contains ``by``.

        A real API server enforces a new policy, and calls a new webhook, with a short delay.
        """
        deadline = time.monotonic() + within_s
        while True:
            _, answer = await self._request("POST", f"{_path(obj)}?dryRun=All", obj)
            if by in answer.get("message", ""):
                return
            if time.monotonic() > deadline:
                raise ApplyError(
                    f"no {by} denied {obj['kind']} {obj['metadata']['name']} within "
                    f"{within_s:g} s: the API server answered {answer.get('message')!r}"
                )
            await asyncio.sleep(0.05)

    async def _apply_one(self, obj: Object) -> None:
        collection = _path(obj)
        status, answer = await self._request("POST", collection, obj)
        name = obj["metadata"]["name"]
        if status == 409:
            _, current = await self._request("GET", f"{collection}/{name}")
            metadata = obj["metadata"] | {
                "resourceVersion": current.get("metadata", {}).get("resourceVersion", "")
            }
            status, answer = await self._request(
                "PUT", f"{collection}/{name}", obj | {"metadata": metadata}
            )
        if status >= 300:
            raise ApplyError(
                f"{obj['kind']} {name} was refused ({status}): {answer.get('message', answer)}"
            )

    async def _request(
        self, method: str, path: str, body: Object | None = None
    ) -> tuple[int, Object]:
        if self._session is None:
            raise RuntimeError("Installer must be used as a context manager")
        async with self._session.request(
            method, self._url + path, json=body, ssl=self._context
        ) as response:
            answer = await response.json(content_type=None)
            return response.status, answer if isinstance(answer, dict) else {}


def documents(path: Path) -> list[Object]:
    """The objects of one YAML file, or of a folder's YAML files in the order of their names."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    texts = [file.read_text(encoding="utf-8") for file in files]
    return [obj for text in texts for obj in yaml.load_all(text, Loader=_LOADER) if obj]


def _path(obj: Object) -> str:
    version = obj["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if namespace := obj["metadata"].get("namespace"):
        root += f"/namespaces/{namespace}"
    return f"{root}/{_PLURALS[obj['kind']]}"
