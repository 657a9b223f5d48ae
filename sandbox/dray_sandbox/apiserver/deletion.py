"""Deletion: preconditions, grace, finalizers, propagation."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from dray.api.pods import TERMINAL_PHASES

from . import metadata, status
from .admission import Attributes
from .context import Context
from .operations import Operations, key_of
from .resources import ApiResource
from .status import Object
from .store import Conflict, copy

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_PROTECTED = ("default", "kube-system", "kube-public")
_RETRIES = 5


@dataclass(frozen=True)
class DeleteOptions:
    """metav1.DeleteOptions, from the body or the query."""

    grace_period_s: int | None = None
    uid: str = ""
    version: str = ""
    propagation: str = ""

    @staticmethod
    def read(body: Object) -> DeleteOptions:
        """From a DeleteOptions object; 400 for an unknown propagation policy."""
        preconditions = body.get("preconditions") or {}
        propagation = body.get("propagationPolicy") or ""
        if propagation not in ("", "Background", "Foreground", "Orphan"):
            policies = ("Foreground", "Background", "Orphan", "nil")
            found = [status.not_supported("propagationPolicy", propagation, policies)]
            raise status.invalid_object("DeleteOptions", "meta.k8s.io", "", found)
        if body.get("orphanDependents"):
            propagation = "Orphan"
        return DeleteOptions(
            body.get("gracePeriodSeconds"),
            preconditions.get("uid") or "",
            preconditions.get("resourceVersion") or "",
            propagation,
        )


@dataclass(frozen=True)
class DeletionResult:
    """The object's present or last state, and whether it is removed."""

    obj: Object
    gone: bool


class Deletion:
    """Deletes objects by the rules of their kinds."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._store = operations.store

    async def delete(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        options: DeleteOptions,
        context: Context,
    ) -> DeletionResult:
        """Delete one object, at once or after its grace and finalizers."""
        for _ in range(_RETRIES):
            old = self._operations.existing(resource, namespace, name)
            _check_preconditions(resource, old["metadata"], options)
            if resource.plural == "namespaces" and not resource.group and name in _PROTECTED:
                raise status.forbidden("namespaces", "", name, "this namespace may not be deleted")
            attributes = Attributes(
                operation="DELETE",
                resource=resource,
                namespace=namespace,
                name=name,
                user=context.user,
                old=old,
                dry_run=context.dry_run,
                options=context.options("DeleteOptions"),
            )
            await self._operations.admission.mutate(attributes, lambda o: o, context.warnings)
            await self._operations.admission.validate(attributes, context.warnings)
            try:
                return self._delete(resource, old, options, context)
            except Conflict:
                continue
        raise status.conflict(resource.plural, resource.group, name)

    def _delete(
        self, resource: ApiResource, old: Object, options: DeleteOptions, context: Context
    ) -> DeletionResult:
        key = key_of(resource, old["metadata"].get("namespace", ""), old["metadata"]["name"])
        new: Object = copy(old)
        grace_s = _grace_s(resource, old, options)
        _add_propagation(new["metadata"], options.propagation)
        waits = grace_s > 0 or new["metadata"].get("finalizers") or _is_namespace(resource)
        if not waits:
            if context.dry_run:
                return DeletionResult(new, gone=True)
            if resource.store_key == "/pods":
                # Even a pod that is removed at once is marked first: watchers get both events.
                _mark(new, 0)
                new["metadata"]["deletionGracePeriodSeconds"] = 0
                old = self._store.write(key, new, old)
            return DeletionResult(self._store.write(key, None, old), gone=True)
        _mark(new, grace_s)
        if _is_namespace(resource):
            new["metadata"].pop("deletionGracePeriodSeconds", None)
            new.setdefault("status", {})["phase"] = "Terminating"
        if new == old or context.dry_run:
            return DeletionResult(new, gone=False)
        return DeletionResult(self._store.write(key, new, old), gone=False)


def _is_namespace(resource: ApiResource) -> bool:
    return resource.store_key == "/namespaces"


def _check_preconditions(resource: ApiResource, meta: Object, options: DeleteOptions) -> None:
    for wanted, seen, what, end in (
        (options.uid, meta["uid"], "UID", "deleted and then recreated"),
        (options.version, meta["resourceVersion"], "ResourceVersion", "modified"),
    ):
        if wanted and wanted != seen:
            why = (
                f"the {what} in the precondition ({wanted}) does not match the {what} in record "
                f"({seen}). The object might have been {end}"
            )
            raise status.conflict(resource.kind, resource.group, meta["name"], why)


def _grace_s(resource: ApiResource, pod: Object, options: DeleteOptions) -> int:
    if resource.store_key != "/pods":
        return 0
    spec = pod["spec"]
    terminal = (pod.get("status") or {}).get("phase") in TERMINAL_PHASES
    if not spec.get("nodeName") or terminal:
        return 0
    grace_s: int | None = options.grace_period_s
    if grace_s is None:
        grace_s = spec.get("terminationGracePeriodSeconds", 0)
    return 1 if grace_s < 0 else grace_s


def _add_propagation(meta: Object, propagation: str) -> None:
    finalizer = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(propagation)
    finalizers = meta.get("finalizers") or []
    if finalizer and finalizer not in finalizers:
        meta["finalizers"] = [*finalizers, finalizer]


def _mark(obj: Object, grace_s: int) -> None:
    """Mark the deletion; a repeated one may only shorten the grace period."""
    meta = obj["metadata"]
    before = meta.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" in meta and (before or 0) <= grace_s:
        return
    ends = datetime.datetime.fromisoformat(metadata.now()) + datetime.timedelta(seconds=grace_s)
    if "deletionTimestamp" not in meta and meta.get("generation"):
        meta["generation"] += 1
    meta["deletionTimestamp"] = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
    meta["deletionGracePeriodSeconds"] = grace_s
