"""Calls the policies and webhooks that match a request, in order, and applies their patches.

Order and messages are those of the real server: namespaceSelector, objectSelector, rules, then
matchConditions; mutating webhooks one after the other by configuration name (once more if
`reinvocationPolicy: IfNeeded` and the object has changed), then policies, then all validating
webhooks at once.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from . import matchconditions, policies
from .patches import json_patch
from .resources import ApiResource
from .selectors import label_selector, matches_labels
from .status import ApiError, Object, forbidden
from .store import Store
from .webhooks import CallFailed, WebhookClient, WebhookVerdict, denial

_CONFIGURATIONS = "admissionregistration.k8s.io"
Redecode = Callable[[Object], Object]
"""Reads an object again after a patch: defaults and canonical values."""


@dataclass(frozen=True)
class Attributes:
    """A request for admission."""

    operation: str
    resource: ApiResource
    namespace: str
    name: str
    user: Object
    obj: Object | None = None
    old: Object | None = None
    subresource: str = ""
    kind: tuple[str, str, str] | None = None
    """Group, version and kind of the object if they are not the resource's (Binding)."""
    dry_run: bool = False
    options: Object = field(default_factory=dict)
    asked_version: str = ""
    """The version of the request, if a webhook gets the object in another one."""

    def group_version_kind(self) -> tuple[str, str, str]:
        """The kind of `obj`."""
        resource = self.resource
        return self.kind or (resource.group, resource.version, resource.kind)


class ApiAdmission:
    """Calls the webhooks that the store's configurations name."""

    def __init__(self, store: Store, client: WebhookClient) -> None:
        self._store = store
        self._client = client

    async def mutate(
        self, attributes: Attributes, redecode: Redecode, warnings: list[str]
    ) -> Object | None:
        """The object after every matching mutating webhook; raises the first denial."""
        called: list[tuple[Object, Object | None]] = []
        for webhook in self._webhooks("mutatingwebhookconfigurations"):
            if self._matches(webhook, attributes):
                attributes = await self._mutated(webhook, attributes, redecode, warnings)
                called.append((webhook, attributes.obj))
        for webhook, left_as in called:
            needed = webhook.get("reinvocationPolicy") == "IfNeeded"
            if needed and left_as != attributes.obj and self._matches(webhook, attributes):
                attributes = await self._mutated(webhook, attributes, redecode, warnings)
        return attributes.obj

    async def validate(self, attributes: Attributes, warnings: list[str]) -> None:
        """Raise the first denial of the matching policies, then of the matching validating
        webhooks, in their order."""
        self._check_policies(attributes, warnings)
        webhooks = [
            webhook
            for webhook in self._webhooks("validatingwebhookconfigurations")
            if self._matches(webhook, attributes)
        ]
        answers = await asyncio.gather(
            *(self._call(webhook, attributes, warnings) for webhook in webhooks),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    def _check_policies(self, attributes: Attributes, warnings: list[str]) -> None:
        bindings: dict[str, list[Object]] = {}
        for binding in self._store.items(f"{_CONFIGURATIONS}/validatingadmissionpolicybindings"):
            bindings.setdefault(binding["spec"]["policyName"], []).append(binding)
        denied: ApiError | None = None
        for policy in self._store.items(f"{_CONFIGURATIONS}/validatingadmissionpolicies"):
            name = policy["metadata"]["name"]
            constraints = policy["spec"]["matchConstraints"]
            selection = {**constraints, "rules": constraints["resourceRules"]}
            if name not in bindings or not self._is_selected(selection, attributes):
                continue
            variables = _variables(_converted(selection, attributes))
            found = list(policies.denials(policy, variables))
            for binding in bindings[name]:
                bound = binding["metadata"]["name"]
                for message, reason, code in found:
                    for action in binding["spec"]["validationActions"]:
                        if action == "Warn":
                            warnings.append(
                                f"Validation failed for ValidatingAdmissionPolicy '{name}' with "
                                f"binding '{bound}': {message}"
                            )
                        elif action == "Deny" and denied is None:
                            denied = _denial(attributes, name, bound, message, reason, code)
        if denied is not None:
            raise denied

    def _webhooks(self, plural: str) -> Iterator[Object]:
        for configuration in self._store.items(f"{_CONFIGURATIONS}/{plural}"):
            yield from configuration.get("webhooks") or []

    async def _mutated(
        self, webhook: Object, attributes: Attributes, redecode: Redecode, warnings: list[str]
    ) -> Attributes:
        verdict = await self._call(webhook, attributes, warnings)
        if verdict is None or not verdict.patch or attributes.obj is None:
            return attributes
        try:
            patched = json_patch(_converted(webhook, attributes).obj or {}, verdict.patch)
        except ApiError as error:
            raise _internal(error.message) from error
        return replace(attributes, obj=redecode(patched))

    async def _call(
        self, webhook: Object, attributes: Attributes, warnings: list[str]
    ) -> WebhookVerdict | None:
        name = webhook["name"]
        try:
            verdict = await self._client.call(webhook, _request(_converted(webhook, attributes)))
        except CallFailed as error:
            if webhook.get("failurePolicy", "Fail") == "Ignore":
                return None
            raise _internal(
                f'failed calling webhook "{name}": failed to call webhook: {error}'
            ) from error
        warnings.extend(verdict.warnings)
        if not verdict.allowed:
            raise denial(name, verdict.status)
        return verdict

    def _matches(self, webhook: Object, attributes: Attributes) -> bool:
        return self._is_selected(webhook, attributes) and _conditions_hold(
            webhook, _converted(webhook, attributes)
        )

    def _is_selected(self, selection: Object, attributes: Attributes) -> bool:
        """Whether selectors and rules of a webhook or a policy select the request."""
        if attributes.resource.group == _CONFIGURATIONS:
            return False
        return (
            self._namespace_matches(selection, attributes)
            and _object_matches(selection, attributes)
            and _matched_version(selection, attributes) is not None
        )

    def _namespace_matches(self, webhook: Object, attributes: Attributes) -> bool:
        terms = label_selector(webhook.get("namespaceSelector"))
        if not terms:
            return True
        if attributes.resource.kind == "Namespace":
            carrier = attributes.obj or attributes.old
        elif not attributes.resource.namespaced:
            return True
        else:
            carrier = self._store.get(("/namespaces", "", attributes.namespace))
        return matches_labels(terms, (carrier or {}).get("metadata", {}).get("labels"))


def _object_matches(webhook: Object, attributes: Attributes) -> bool:
    terms = label_selector(webhook.get("objectSelector"))
    if not terms:
        return True
    return any(
        matches_labels(terms, item["metadata"].get("labels"))
        for item in (attributes.obj, attributes.old)
        if item is not None
    )


def _matched_version(webhook: Object, attributes: Attributes) -> str | None:
    """The version that the webhook's rules name: the request's, else an equivalent one."""
    resource = attributes.resource
    exact = webhook.get("matchPolicy") == "Exact"
    for version in (resource.version, *(() if exact else resource.equivalents)):
        served = replace(attributes, resource=resource.in_version(version))
        if any(_rule_matches(rule, served) for rule in webhook.get("rules") or []):
            return version
    return None


def _converted(webhook: Object, attributes: Attributes) -> Attributes:
    """The request, converted to the version that the webhook's rules name."""
    version = _matched_version(webhook, attributes)
    resource = attributes.resource
    if version is None or not resource.equivalents:
        return attributes
    converted = resource.in_version(version)

    def shown(item: Object | None) -> Object | None:
        return item and {**item, "apiVersion": converted.api_version}

    return replace(
        attributes,
        resource=converted,
        obj=shown(attributes.obj),
        old=shown(attributes.old),
        asked_version=resource.version,
    )


def _rule_matches(rule: Object, attributes: Attributes) -> bool:
    resource = attributes.resource
    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") != resource.namespaced:
        return False
    return (
        _listed(rule.get("operations"), attributes.operation)
        and _listed(rule.get("apiGroups"), resource.group)
        and _listed(rule.get("apiVersions"), resource.version)
        and any(
            _resource_listed(entry, resource.plural, attributes.subresource)
            for entry in rule.get("resources") or []
        )
    )


def _listed(entries: list[str] | None, value: str) -> bool:
    return any(entry in ("*", value) for entry in entries or [])


def _resource_listed(entry: str, plural: str, subresource: str) -> bool:
    wanted, _, wanted_sub = entry.partition("/")
    return wanted in ("*", plural) and (wanted_sub == subresource or wanted_sub == "*")


_OBJECTS = ("object", "oldObject")


def _conditions_hold(webhook: Object, attributes: Attributes) -> bool:
    """False if a condition is false; else failurePolicy decides about errors."""
    failed: list[str] = []
    variables = _variables(attributes)
    for condition in webhook.get("matchConditions") or []:
        try:
            if not matchconditions.evaluate(condition["expression"], variables):
                return False
        except matchconditions.ExpressionError as error:
            failed.append(f"expression '{condition['expression']}' resulted in error: {error}")
    if not failed:
        return True
    if webhook.get("failurePolicy", "Fail") == "Ignore":
        return False
    resource = attributes.resource
    raise forbidden(resource.plural, resource.group, attributes.name, "; ".join(failed))


def _variables(attributes: Attributes) -> Object:
    """The variables of conditions and validations."""
    return {
        "object": attributes.obj,
        "oldObject": attributes.old,
        "request": {k: v for k, v in _request(attributes).items() if k not in _OBJECTS},
    }


def _denial(
    attributes: Attributes, policy: str, binding: str, message: str, reason: str, code: int
) -> ApiError:
    """The error of a request that a policy denies (`admission.NewForbidden`, with the reason and
    code of the validation)."""
    text = (
        f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
    )
    meta = (attributes.obj or {}).get("metadata") or {}
    name = attributes.name or meta.get("name") or meta.get("generateName") or "Unknown"
    resource = attributes.resource
    error = forbidden(resource.plural, resource.group, name, text, [{"message": text}])
    return ApiError(code, reason, error.message, error.details)


def _request(attributes: Attributes) -> Object:
    group, version, kind = attributes.group_version_kind()
    resource = attributes.resource
    served = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    asked = {"version": attributes.asked_version} if attributes.asked_version else {}
    request: Object = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": served,
        "requestKind": {"group": group, "version": version, "kind": kind, **asked},
        "requestResource": served | asked,
    }
    if attributes.subresource:
        request["subResource"] = request["requestSubResource"] = attributes.subresource
    if attributes.name:
        request["name"] = attributes.name
    if attributes.namespace:
        request["namespace"] = attributes.namespace
    return request | {
        "operation": attributes.operation,
        "userInfo": attributes.user,
        "object": attributes.obj,
        "oldObject": attributes.old,
        "dryRun": attributes.dry_run,
        "options": attributes.options or None,
    }


def _internal(message: str) -> ApiError:
    details: dict[str, Any] = {"causes": [{"message": message}]}
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", details)
