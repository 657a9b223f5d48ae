"""JSON patch, JSON merge patch and strategic merge patch."""

from typing import Any

import jsonpatch
import jsonpointer

from .status import ApiError, Object, bad_request
from .store import copy

# Merge keys of lists (`patchMergeKey` of k8s.io/api), by the name of the field or by the names of
# its parent and the field. A list that isn't here is replaced as a whole.
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "resourceClaims": "name",
    "resourceClaimStatuses": "name",
    "schedulingGates": "name",
    "imagePullSecrets": "name",
    "secrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
    "reservedFor": "uid",
    "webhooks": "name",
    "podIPs": "ip",
}
_MERGE_KEYS_BELOW = {
    ("containers", "ports"): "containerPort",
    ("initContainers", "ports"): "containerPort",
    ("spec", "ports"): "port",
    ("status", "conditions"): "type",
    ("status", "addresses"): "type",
}
_MERGED_SCALARS = {"finalizers"}


def merge_key(parent: str, field: str) -> str | None:
    """The key by which a list of a built-in kind is merged, if it has one."""
    return _MERGE_KEYS_BELOW.get((parent, field)) or _MERGE_KEYS.get(field)


_REJECTED = "the server rejected our request due to an error in our request"


def json_patch(target: Object, operations: Any) -> Any:
    """Apply RFC 6902; 422 when an operation can't be applied, as the real server answers."""
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type "
            "[]handlers.jsonPatchOp"
        )
    try:
        return jsonpatch.JsonPatch(operations).apply(copy(target))
    except jsonpatch.JsonPatchTestFailed as error:
        raise _unprocessable(_REJECTED) from error
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise _unprocessable(_REJECTED) from error


def _unprocessable(message: str) -> ApiError:
    return ApiError(422, "Invalid", message, {})


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_patch(target: Any, patch: Any, parent: str = "", field: str = "") -> Any:
    """Apply a strategic merge patch with its `$patch`, `$retainKeys` and delete directives."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    retained = patch.get("$retainKeys")
    if retained is not None:
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$setElementOrder/") or key in ("$retainKeys", "$patch"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.split("/", 1)[1]
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            result[key] = _list(result.get(key) or [], value, field, key)
        elif isinstance(value, dict) and value.get("$patch") == "delete":
            result.pop(key, None)
        else:
            result[key] = strategic_patch(result.get(key), value, field, key)
    merged: dict[str, Any] = _ordered(target, result, patch, field)
    return merged


def _list(current: list[Any], patch: list[Any], parent: str, field: str) -> list[Any]:
    if field in _MERGED_SCALARS:
        merged = current + [item for item in patch if item not in current]
        return _ordered_list(merged, list(patch), list(current))
    key = merge_key(parent, field)
    if key is None or not all(isinstance(item, dict) for item in patch):
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    result = list(current)
    for item in patch:
        where = next((i for i, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if where is not None:
                del result[where]
        elif where is None:
            result.append(strategic_patch({}, item, parent, field))
        else:
            result[where] = strategic_patch(result[where], item, parent, field)
    named = [item.get(key) for item in patch]
    return _ordered_list(result, named, [item.get(key) for item in current], key)


def _ordered_list(
    items: list[Any], named: list[Any], before: list[Any], key: str | None = None
) -> list[Any]:
    """Items that the patch names, in the patch's order, merged with the others in their order.

    An unnamed item comes before a named one only if the server had both in that order; so new
    items come first (`mergeSortedSlice` of apimachinery's strategicpatch).
    """

    def identity(item: Any) -> Any:
        return item.get(key) if key else item

    mine = sorted(
        (item for item in items if identity(item) in named), key=lambda i: named.index(identity(i))
    )
    others = [item for item in items if identity(item) not in named]
    result: list[Any] = []
    while mine and others:
        left, right = identity(others[0]), identity(mine[0])
        known = left in before and right in before
        first = known and before.index(left) < before.index(right)
        result.append(others.pop(0) if first else mine.pop(0))
    return result + mine + others


def _ordered(target: Any, result: dict[str, Any], patch: dict[str, Any], field: str) -> Any:
    """Apply `$setElementOrder/<list>`."""
    for directive, order in patch.items():
        if not directive.startswith("$setElementOrder/"):
            continue
        name = directive.split("/", 1)[1]
        items = result.get(name)
        if not isinstance(items, list):
            continue
        key = merge_key(field, name)
        old = (target.get(name) if isinstance(target, dict) else None) or []
        named = [item.get(key) if isinstance(item, dict) else item for item in order]
        before = [item.get(key) if isinstance(item, dict) else item for item in old]
        result[name] = _ordered_list(items, named, before, key)
    return result
