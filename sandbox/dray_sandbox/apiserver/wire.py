"""Conversion of stored objects to answers, and of requests' objects to stored ones."""

from typing import Any

from . import events, subresources
from .deletion import DeletionResult
from .operations import Operations
from .resources import ApiResource
from .status import Object
from .tables import table

NEW_EVENTS = "events.k8s.io"
TYPE = ("kind", "apiVersion")
_DELETED_WHOLE = ("/pods", "/services", "/serviceaccounts")


def wire(resource: ApiResource, item: Object) -> Object:
    """An object as this version of the resource shows it."""
    if resource.group == NEW_EVENTS:
        return events.to_new(item)
    if item.get("apiVersion") != resource.api_version:
        return {**item, "apiVersion": resource.api_version}
    return item


def stored_as(operations: Operations, resource: ApiResource, body: Any) -> tuple[ApiResource, Any]:
    """The stored form of a body: Events of events.k8s.io are stored as core Events."""
    if resource.group != NEW_EVENTS or not isinstance(body, dict):
        return resource, body
    core = operations.registry.find("", "v1", "events")
    if core is None:
        raise AssertionError("core events are always served")
    return core, events.to_core(body)


def event_table(
    resource: ApiResource, kind: str, item: Object, include: str, first: bool
) -> Object:
    """A watch event's object as a Table; only the first one names the columns."""
    meta = {"resourceVersion": item["metadata"].get("resourceVersion", "")}
    rows = [] if kind == "BOOKMARK" else [item]
    return table(resource, rows, meta, include, with_columns=first)


def deletion_answer(resource: ApiResource, deleted: DeletionResult) -> Object:
    """The object while it remains (for some kinds also after its removal), else a Success."""
    whole = resource.store_key in _DELETED_WHOLE or resource.group == "resource.k8s.io"
    if not deleted.gone or whole:
        return wire(resource, deleted.obj)
    meta = deleted.obj["metadata"]
    details = {"name": meta["name"], "kind": resource.plural, "uid": meta["uid"]}
    if resource.group:
        details["group"] = resource.group
    return {**subresources.SUCCESS, "details": details}
