"""PUT and PATCH as functions of an object."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from . import metadata, status
from .apply import MergeKeys, apply_patch, built_in_keys, schema_keys
from .context import Context
from .patches import json_patch, merge_patch, strategic_patch
from .requests import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, flag
from .resources import ApiResource
from .status import Object, bad_request


def keys_of(resource: ApiResource) -> MergeKeys:
    """How lists of a resource are merged by server-side apply."""
    return built_in_keys if resource.schema is None else schema_keys(resource.schema)


def replacement(body: Any) -> Callable[[Object | None], Object]:
    """A PUT: the body; 400 if it is not an object."""
    if not isinstance(body, dict):
        raise bad_request("the body of the request is not an object")
    body.setdefault("metadata", {})
    return lambda _: dict(body)


def applied(resource: ApiResource, body: Any, subresource: str) -> Any:
    """An applied configuration without its status, or, for the subresource `status`, without its
    spec; 400 if it names no apiVersion or kind."""
    if not isinstance(body, dict):
        return body
    for name in ("apiVersion", "kind"):
        if not body.get(name):
            raise bad_request(
                f"Object '{name[0].upper()}{name[1:]}' is missing in the configuration"
            )
    if "status" not in resource.subresources:
        return body
    other = "spec" if subresource == "status" else "status"
    return {key: value for key, value in body.items() if key != other}


def patch_of(
    request: web.Request, resource: ApiResource, body: Any, context: Context
) -> Callable[[Object | None], Object]:
    """A PATCH of any of the four types; 415 for a type that the resource doesn't take."""
    kind = request.content_type
    if kind == APPLY_PATCH and not request.query.get("fieldManager"):
        found = [status.required("fieldManager", "is required for apply patch")]
        raise status.invalid_object("PatchOptions", "meta.k8s.io", "", found)
    accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
    if resource.strategic:
        accepted.insert(2, STRATEGIC_PATCH)
    if kind not in accepted:
        raise status.unsupported_media_type(kind, accepted)

    def transform(current: Object | None) -> Object:
        old = current or {}
        if kind == JSON_PATCH:
            result: Any = json_patch(old, body)
        elif kind == APPLY_PATCH:
            result = apply_patch(
                old,
                body,
                manager=context.field_manager,
                force=flag(request, "force"),
                keys=keys_of(resource),
                now=metadata.now(),
            )
        elif not isinstance(body, dict):
            raise bad_request("the body of the patch is not an object")
        elif kind == MERGE_PATCH:
            result = merge_patch(old, body)
        else:
            result = strategic_patch(old, body)
        if not isinstance(result, dict) or not isinstance(result.get("metadata"), dict):
            raise bad_request("the patched object has no metadata")
        return result

    return transform
