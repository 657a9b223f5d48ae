"""Simplified server-side apply: managers, their fields, conflicts, removal.

Only apply requests are tracked in metadata.managedFields, not updates; so conflicts exist only with
other *appliers* of a field. Lists with a merge key (of a built-in kind or a schema) are owned by
item, other lists as a whole.
"""

from collections.abc import Callable, Iterator
from typing import Any

from .patches import merge_key
from .status import ApiError, Object, bad_request
from .store import copy

Path = tuple[str, ...]
MergeKeys = Callable[[Path], str | None]
"""The merge key of the list at a path; None: the list is atomic."""
_NOT_OWNED = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}


def apply_patch(
    current: Object | None, config: Object, *, manager: str, force: bool, keys: MergeKeys, now: str
) -> Object:
    """The object after `manager` applied `config`; 409 when others own a changed field."""
    if not manager:
        raise bad_request("fieldManager is required for apply patch")
    if config.get("metadata", {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    base: Object = copy(current) if current else {}
    entries = list(base.get("metadata", {}).get("managedFields") or [])
    leaves = dict(_leaves(config, keys))
    if not force:
        _refuse_conflicts(base, leaves, entries, manager, keys)
    mine = _owned(entries, manager)
    others = set().union(
        *(_owned(entries, name) for name in {e.get("manager") for e in entries} - {manager})
    )
    for path in sorted(mine - set(leaves) - others, key=len):
        _remove(base, path)  # a list item is removed before, and with, its fields
    result: Object = _merge(base, config, keys)
    kept = [_without(e, set(leaves)) if force else e for e in entries if e["manager"] != manager]
    entry = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": config.get("apiVersion", ""),
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": _as_fields(leaves),
    }
    result.setdefault("metadata", {})["managedFields"] = [e for e in kept if e["fieldsV1"]] + [
        entry
    ]
    return result


def _refuse_conflicts(
    base: Object, leaves: dict[Path, Any], entries: list[Object], manager: str, keys: MergeKeys
) -> None:
    present = dict(_leaves(base, keys))
    causes = []
    for entry in entries:
        if entry.get("manager") == manager:
            continue
        for path in sorted(_paths(entry["fieldsV1"])):
            if path in leaves and path in present and present[path] != leaves[path]:
                text = f'conflict with "{entry["manager"]}"'
                field = "." + ".".join(step.removeprefix("f:") for step in path)
                causes.append({"reason": "FieldManagerConflict", "message": text, "field": field})
    if causes:
        listed = ", ".join(cause["field"] for cause in causes)
        plural = "conflict" if len(causes) == 1 else "conflicts"
        message = f"Apply failed with {len(causes)} {plural}: {causes[0]['message']}: {listed}"
        raise ApiError(409, "Conflict", message, {"causes": causes})


def _leaves(value: Any, keys: MergeKeys, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if path in _NOT_OWNED or path[-1:] == ("managedFields",):
        return
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, keys, (*path, name))
        return
    key = keys(_fields_only(path)) if isinstance(value, list) else None
    if key and all(isinstance(item, dict) and key in item for item in value):
        for item in value:
            step = f"k:{key}={item[key]}"
            yield (*path, step), None
            for name, inner in item.items():
                yield from _leaves(inner, keys, (*path, step, name))
        return
    yield path, value


def _fields_only(path: Path) -> Path:
    return tuple(step for step in path if not step.startswith("k:"))


def _owned(entries: list[Object], manager: str | None) -> set[Path]:
    paths: set[Path] = set()
    for entry in entries:
        if entry.get("manager") == manager:
            paths |= _paths(entry["fieldsV1"])
    return paths


def _paths(fields: Object, path: Path = ()) -> set[Path]:
    if not fields:
        return {path} if path else set()
    found: set[Path] = set()
    for key, inner in fields.items():
        if key == ".":
            found.add(path)
        else:
            found |= _paths(inner, (*path, key.removeprefix("f:")))
    return found


def _as_fields(leaves: dict[Path, Any]) -> Object:
    root: Object = {}
    for path in leaves:
        node = root
        for step in path:
            node = node.setdefault(step if step.startswith("k:") else f"f:{step}", {})
    for path in leaves:
        node = root
        for step in path:
            node = node[step if step.startswith("k:") else f"f:{step}"]
        if node and "." not in node:
            node["."] = {}
    return root


def _without(entry: Object, paths: set[Path]) -> Object:
    kept = dict.fromkeys(sorted(_paths(entry["fieldsV1"]) - paths))
    return {**entry, "fieldsV1": _as_fields(kept)}


def _find(items: list[Any], step: str) -> int | None:
    name, _, wanted = step.removeprefix("k:").partition("=")
    for index, item in enumerate(items):
        if isinstance(item, dict) and str(item.get(name)) == wanted:
            return index
    return None


def _remove(base: Object, path: Path) -> None:
    node: Any = base
    for step in path[:-1]:
        if isinstance(node, list):
            index = _find(node, step)
            node = node[index] if index is not None else None
        else:
            node = node.get(step) if isinstance(node, dict) else None
    if isinstance(node, dict):
        node.pop(path[-1], None)
    elif isinstance(node, list):
        index = _find(node, path[-1])
        if index is not None:
            del node[index]


def _merge(base: Any, config: Any, keys: MergeKeys, path: Path = ()) -> Any:
    if isinstance(config, dict) and isinstance(base, dict):
        result = dict(base)
        for name, value in config.items():
            if value is not None:
                result[name] = _merge(base.get(name), value, keys, (*path, name))
        return result
    key = keys(path)
    if not (key and isinstance(config, list) and isinstance(base, list)):
        return config
    result_list = list(base)
    for item in config:
        index = _find(result_list, f"k:{key}={item.get(key)}")
        if index is None:
            result_list.append(item)
        else:
            result_list[index] = _merge(result_list[index], item, keys, path)
    return result_list


def built_in_keys(path: Path) -> str | None:
    """Merge keys of built-in kinds."""
    return merge_key(path[-2] if len(path) > 1 else "", path[-1]) if path else None


def schema_keys(schema: Object) -> MergeKeys:
    """Merge keys that a custom resource's schema states (`x-kubernetes-list-type: map`)."""

    def keys(path: Path) -> str | None:
        node: Any = schema
        for step in path:
            node = node.get("items") or node
            node = (node.get("properties") or {}).get(step) or {}
        names = node.get("x-kubernetes-list-map-keys") or []
        return names[0] if node.get("x-kubernetes-list-type") == "map" and names else None

    return keys
