"""Writes of a user to the API server in memory, past dray's webhook and admission policies."""

import copy
from collections.abc import Iterator
from typing import Any

import jsonpatch

from dray.api.names import DRAY_NAMESPACE
from dray.kube.memory import MemoryKube
from dray.kube.memory_patch import patched
from dray.kube.ports import CLAIMS, PODS, TEMPLATES, Object, RefusedError, Resource
from dray.messages.inputs import MUTATE_POD
from dray_sandbox.apiserver.policies import denials
from dray_sandbox.chart import admission_policies
from dray_webhook.decisions.dispatch import MUTATE_CLAIM, VALIDATE_CLAIM, VALIDATE_POD, decide
from dray_webhook.decisions.injection import AdmissionIds
from dray_webhook.decisions.pools import Installation, service_users
from dray_webhook.decisions.review import AdmissionRequest
from tools.simulation.cluster import webhook_view

MUTATING = {PODS: MUTATE_POD, CLAIMS: MUTATE_CLAIM}
VALIDATING = {PODS: VALIDATE_POD, CLAIMS: VALIDATE_CLAIM, TEMPLATES: VALIDATE_CLAIM}
_POLICIES = [obj for obj in admission_policies() if "validations" in obj["spec"]]


class User:
    """One user's hands. ``admission``: whether webhook and policies are there at all."""

    def __init__(self, kube: MemoryKube, name: str, namespace: str, *, admission: bool) -> None:
        self.kube = kube
        self.name = name
        self.namespace = namespace
        self.admission = admission

    async def create(self, resource: Resource, obj: Object) -> Object:
        """Create an object. Raises RefusedError, and what the server raises."""
        obj = copy.deepcopy(obj)
        obj["metadata"].setdefault("namespace", self.namespace)
        obj = self._admitted("CREATE", resource, obj, None)
        return await self.kube.create(resource, obj, self.namespace)

    async def patch(self, resource: Resource, name: str, patch: Any, subresource: str = "") -> None:
        """Merge into an object, as kubectl does. Raises the same."""
        old = await self.kube.get(resource, name, self.namespace)
        new = patched(old, patch, "merge")
        new = self._admitted("UPDATE", resource, new, old, subresource)
        await self.kube.update(resource, new, subresource=subresource)

    async def delete(self, resource: Resource, name: str) -> None:
        """Delete an object."""
        await self.kube.delete(resource, name, self.namespace)

    def _admitted(
        self,
        operation: str,
        resource: Resource,
        obj: Object,
        old: Object | None,
        subresource: str = "",
    ) -> Object:
        if not self.admission:
            return obj
        if not subresource and (path := MUTATING.get(resource)):
            obj = self._reviewed(path, operation, resource, obj, old)
        for message in self._denials(operation, resource, obj, old, subresource):
            raise RefusedError(message, 422)
        if operation == "CREATE" and (path := VALIDATING.get(resource)):
            self._reviewed(path, operation, resource, obj, old)
        return obj

    def _reviewed(
        self, path: str, operation: str, resource: Resource, obj: Object, old: Object | None
    ) -> Object:
        request = AdmissionRequest.model_validate(
            {
                "uid": "review",
                "kind": {"group": resource.group, "version": "v1", "kind": resource.kind},
                "namespace": self.namespace,
                "name": obj["metadata"].get("name", ""),
                "operation": operation,
                "userInfo": {"username": self.name},
                "object": obj,
                "oldObject": old,
            }
        )
        rules = Installation(DRAY_NAMESPACE, service_users(DRAY_NAMESPACE))
        ids = AdmissionIds(obj["metadata"].get("name", ""), "")
        answer = decide(path, request, webhook_view(self.kube), rules, ids)
        if not answer.allowed:
            raise RefusedError(answer.message, answer.code)
        made: Object = jsonpatch.apply_patch(obj, list(answer.patch))
        return made

    def _denials(
        self,
        operation: str,
        resource: Resource,
        obj: Object,
        old: Object | None,
        subresource: str,
    ) -> Iterator[str]:
        plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
        request = {"operation": operation, "userInfo": {"username": self.name}}
        variables = {"object": obj, "oldObject": old, "request": request}
        for policy in _POLICIES:
            spec = {"failurePolicy": "Fail", **policy["spec"]}
            if any(
                operation in rule["operations"]
                and resource.group in rule["apiGroups"]
                and plural in rule["resources"]
                for rule in spec["matchConstraints"]["resourceRules"]
            ):
                for message, _, _ in denials({"spec": spec}, variables):
                    yield message
