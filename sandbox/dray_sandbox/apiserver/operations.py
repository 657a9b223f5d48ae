"""Create, update and patch: the order of admission, rules, conflicts and the write itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dray.api.equality import strictly_equal

from . import metadata, priority, status
from .admission import ApiAdmission, Attributes
from .context import Context
from .crds import CrdRules, CustomRules
from .resources import ApiResource, Registry
from .rules import ResourceRules
from .rules_core import built_in_rules
from .status import ApiError, FieldError, Object, bad_request
from .store import Conflict, Key, Store, copy

_RETRIES = 5
Transform = Callable[[Object | None], Object]


def _rules_of(resource: ApiResource) -> ResourceRules:
    """The rules of any resource."""
    if resource.schema is not None:
        return CustomRules(resource)
    if resource.plural == "customresourcedefinitions":
        return CrdRules(resource)
    return built_in_rules(resource)


def key_of(resource: ApiResource, namespace: str, name: str) -> Key:
    """The store's key of an object."""
    return (resource.store_key, namespace if resource.namespaced else "", name)


class Operations:
    """Creates and updates objects for a request."""

    def __init__(self, store: Store, registry: Registry, admission: ApiAdmission) -> None:
        self.store = store
        self.registry = registry
        self.admission = admission

    def existing(self, resource: ApiResource, namespace: str, name: str) -> Object:
        """The object; 404 when there is none."""
        found = self.store.get(key_of(resource, namespace, name))
        if found is None:
            raise status.not_found(resource.plural, resource.group, name)
        return found

    async def create(
        self, resource: ApiResource, namespace: str, body: Object, context: Context
    ) -> Object:
        """Store a new object."""
        rules = _rules_of(resource)
        obj = self._read(rules, body, context)
        meta = obj["metadata"]
        _check_namespace(resource, namespace, meta)
        if resource.namespaced:
            found = self._namespace_open(resource, namespace, meta.get("name", ""))
            rules.namespace_labels = found["metadata"].get("labels") or {}
        if resource.store_key == "/pods":
            priority.resolve(self.store, obj)
        versioned = meta.pop("resourceVersion", None) not in (None, "", "0")
        attributes = Attributes(
            operation="CREATE",
            resource=resource,
            namespace=namespace,
            name=meta.get("name", ""),
            user=context.user,
            obj=obj,
            dry_run=context.dry_run,
            options=context.options("CreateOptions"),
        )
        obj = await self._mutate(rules, attributes, context)
        if resource.store_key == "/pods":
            # Plugins run again after a webhook has changed the object.
            priority.resolve(self.store, obj)
        obj["apiVersion"] = resource.kept_as
        meta = obj["metadata"]
        metadata.fill_new(meta)
        metadata.generate_name(meta)
        metadata.tidy(meta)
        if meta.get("name"):
            rules.prepare_create(obj)
        self._refuse(resource, meta, [*rules.metadata_errors(meta), *rules.validate_create(obj)])
        if versioned:
            raise status.created_with_version()
        checked = _with(attributes, obj)
        await self.admission.validate(checked, context.warnings)
        return self._insert(resource, namespace, obj, context)

    def _insert(
        self, resource: ApiResource, namespace: str, obj: Object, context: Context
    ) -> Object:
        key = key_of(resource, namespace, obj["metadata"]["name"])
        if self.store.get(key) is not None:
            raise status.already_exists(resource.plural, resource.group, key[2])
        if resource.namespaced:
            self._namespace_open(resource, namespace, key[2])
        return obj if context.dry_run else self.store.write(key, obj, None)

    async def update(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        transform: Transform,
        context: Context,
        *,
        subresource: str = "",
        patch: bool = False,
    ) -> Object:
        """Replace an object by the result of `transform`.

        A patch without a version is retried after a concurrent write.
        """
        for attempt in range(_RETRIES):
            old = self.existing(resource, namespace, name)
            candidate = transform({**copy(old), "apiVersion": resource.api_version})
            try:
                return await self._replace(resource, old, candidate, context, subresource, patch)
            except Conflict as error:
                pinned = candidate["metadata"].get("resourceVersion") and not patch
                if pinned or attempt == _RETRIES - 1:
                    raise status.conflict(resource.plural, resource.group, name) from error
        raise AssertionError("the loop above always returns or raises")

    async def _replace(
        self,
        resource: ApiResource,
        old: Object,
        candidate: Object,
        context: Context,
        subresource: str,
        patch: bool,
    ) -> Object:
        rules = _rules_of(resource)
        if patch and candidate.get("apiVersion") in resource.other_versions:
            candidate["apiVersion"] = resource.api_version
        try:
            new = self._read(rules, candidate, context)
        except ApiError as error:
            if not patch:
                raise
            raise _unreadable_patch(candidate, error) from error
        self._check_identity(resource, new["metadata"], old["metadata"], patch)
        meta = old["metadata"]
        attributes = Attributes(
            operation="UPDATE",
            resource=resource,
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            user=context.user,
            obj=new,
            old=old,
            subresource=subresource,
            dry_run=context.dry_run,
            options=context.options("UpdateOptions"),
        )
        new = await self._mutate(rules, attributes, context)
        new["apiVersion"] = resource.kept_as
        found = self._prepare(rules, new, old, subresource)
        self._refuse(resource, meta, found)
        await self.admission.validate(_with(attributes, new), context.warnings)
        return self._commit(resource, new, old, context)

    def _prepare(
        self, rules: ResourceRules, new: Object, old: Object, subresource: str
    ) -> list[FieldError]:
        metadata.keep_server_fields(new["metadata"], old["metadata"])
        metadata.tidy(new["metadata"])
        if subresource == "status":
            rules.prepare_status(new, old)
            metadata.tidy(new["metadata"])
            return list(rules.validate_status(new, old))
        rules.prepare_update(new, old)
        found = rules.metadata_errors(new["metadata"])
        found += metadata.update_errors(new["metadata"], old["metadata"])
        return found + list(rules.validate_update(new, old))

    def _commit(self, resource: ApiResource, new: Object, old: Object, context: Context) -> Object:
        meta = old["metadata"]
        key = key_of(resource, meta.get("namespace", ""), meta["name"])
        if self.store.get(key) is not old:
            raise Conflict(key)
        new["metadata"]["resourceVersion"] = meta["resourceVersion"]
        if strictly_equal(new, old):
            return old
        if context.dry_run:
            return new
        finished = (
            "deletionTimestamp" in meta
            and meta.get("finalizers")
            and not new["metadata"].get("finalizers")
            and not meta.get("deletionGracePeriodSeconds")
        )
        if finished:
            new = self.store.write(key, new, old)
            return self.store.write(key, None, new)
        return self.store.write(key, new, old)

    def _read(self, rules: ResourceRules, body: Object, context: Context) -> Object:
        resource = rules.resource
        if not isinstance(body, dict):
            raise bad_request("the body of the request is not an object")
        kind = body.get("kind") or resource.kind
        version = body.get("apiVersion") or resource.api_version
        if kind == resource.kind and version in resource.other_versions:
            raise bad_request(
                f"the API version in the data ({version}) does not match the expected API version "
                f"({resource.api_version})"
            )
        if (kind, version) != (resource.kind, resource.api_version):
            raise bad_request(
                f'{kind} in version "{version}" cannot be handled as a {resource.kind}: '
                f'no kind "{kind}" is registered for version "{version}"'
            )
        obj, unknown = rules.read(copy(body), strict=context.strict)
        if context.field_validation == "Warn":
            context.warnings.extend(f'unknown field "{name}"' for name in unknown)
        return {"kind": resource.kind, "apiVersion": resource.api_version} | obj

    async def _mutate(
        self, rules: ResourceRules, attributes: Attributes, context: Context
    ) -> Object:
        def redecode(patched: Object) -> Object:
            obj, _ = rules.read(patched, strict=False)
            return obj

        mutated = await self.admission.mutate(attributes, redecode, context.warnings)
        if mutated is None:
            raise AssertionError("a webhook can't remove the object")
        result: Object = copy(mutated)
        return result

    def _check_identity(self, resource: ApiResource, new: Object, old: Object, patch: bool) -> None:
        name = old["name"]
        if new.get("name", name) != name:
            text = f"the name of the object ({new['name']}) does not match the name on the URL"
            raise bad_request(f"{text} ({name})")
        if new.get("namespace", old.get("namespace")) != old.get("namespace"):
            raise status.wrong_namespace()
        if patch and new.get("uid", old["uid"]) != old["uid"]:
            found = [status.immutable_error("metadata.uid", new["uid"])]
            raise status.invalid_object(resource.kind, resource.group, name, found)
        if new.get("uid") and new["uid"] != old["uid"]:
            why = (
                f"Precondition failed: UID in precondition: {new['uid']}, "
                f"UID in object meta: {old['uid']}"
            )
            raise status.conflict(resource.plural, resource.group, name, why)
        version = new.get("resourceVersion")
        if not version and not resource.unconditional_update:
            text = "must be specified for an update"
            found = [status.invalid("metadata.resourceVersion", 0, text)]
            raise status.invalid_object(resource.kind, resource.group, name, found)
        if version and version != old["resourceVersion"]:
            raise status.conflict(resource.plural, resource.group, name)

    def _namespace_open(self, resource: ApiResource, namespace: str, name: str) -> Object:
        found = self.store.get(("/namespaces", "", namespace))
        if found is None:
            raise status.not_found("namespaces", "", namespace)
        if "deletionTimestamp" in found["metadata"]:
            why = (
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise status.forbidden(resource.plural, resource.group, name, why, [cause])
        return found

    def _refuse(self, resource: ApiResource, meta: Object, found: list[FieldError]) -> None:
        if found:
            name = meta.get("name", "")
            raise status.invalid_object(resource.kind, resource.group, name, found)


def _with(attributes: Attributes, obj: Object) -> Attributes:
    return replace(attributes, obj=obj)


def _check_namespace(resource: ApiResource, namespace: str, meta: dict[str, Any]) -> None:
    if not resource.namespaced:
        meta.pop("namespace", None)
    elif meta.setdefault("namespace", namespace) != namespace:
        raise status.wrong_namespace()


def _unreadable_patch(candidate: Object, error: ApiError) -> ApiError:
    """The error of a patch whose result can't be read."""
    text = error.message.partition("cannot be handled as a ")[2].partition(": ")[2]
    shown = status.go_value(candidate)
    found = [status.invalid("patch", shown, text or error.message)]
    return status.invalid_object("", "", "", found)
