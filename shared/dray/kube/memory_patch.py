"""Patches as the API server applies them, as far as dray and its tests use them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonpatch

from dray.kube.memory_copy import deep_copy
from dray.kube.ports import ConflictError, Object, PatchType, RefusedError

_MERGE_KEYS: Final = {
    "ownerReferences": "uid",
    "conditions": "type",
    "reservedFor": "uid",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "resourceClaimStatuses": "name",
}
"""Lists that a strategic merge patch merges by key."""
_SETS: Final = ("finalizers",)


def patched(obj: Object, patch: Any, kind: PatchType) -> Object:
    """A patched copy. Raises ConflictError (a failed test), RefusedError (it can't be applied)."""
    if kind == "json":
        return _json_patched(obj, patch)
    result: Object = _merged(deep_copy(obj), patch, strategic=kind != "merge")
    return result


def _json_patched(obj: Object, patch: Sequence[Mapping[str, Any]]) -> Object:
    try:
        result: Object = jsonpatch.apply_patch(obj, list(patch))
    except jsonpatch.JsonPatchTestFailed as error:
        raise ConflictError(f"the JSON patch's test failed: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise RefusedError(f"the JSON patch can't be applied: {error}", 422) from error
    return result


def _merged(target: Any, patch: Any, *, strategic: bool) -> Any:
    if not isinstance(patch, Mapping):
        return deep_copy(patch)
    result = target if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif strategic and isinstance(value, list) and name in _MERGE_KEYS:
            result[name] = _joined(result.get(name) or [], value, _MERGE_KEYS[name])
        elif strategic and isinstance(value, list) and name in _SETS:
            known = result.get(name) or []
            result[name] = [*known, *(item for item in value if item not in known)]
        else:
            result[name] = _merged(result.get(name), value, strategic=strategic)
    return result


def _joined(items: list[Any], changes: list[Any], key: str) -> list[Any]:
    result = list(items)
    for change in changes:
        index = next((i for i, item in enumerate(result) if item[key] == change[key]), None)
        if change.get("$patch") == "delete":
            if index is not None:
                del result[index]
        elif index is None:
            result.append(change)
        else:
            result[index] = _merged(deep_copy(result[index]), change, strategic=True)
    return result
