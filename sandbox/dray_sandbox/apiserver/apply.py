"""Server-side apply in its simple form: managers, their fields, conflicts, removal.

Only apply requests are tracked in metadata.managedFields, not plain updates; so a conflict is
raised against another *applier* of a field. Lists of built-in kinds merge by their merge key,
other lists are owned as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .patches import merge_key
from .status import ApiError, Object, bad_request
from .store import copy

Path = tuple[str, ...]
_NOT_OWNED = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}


def apply_patch(
    current: Object | None, config: Object, *, manager: str, force: bool, strategic: bool, now: str
) -> Object:
    """The object after `manager` applied `config`; 409 when others own a changed field."""
    if not manager:
        raise bad_request("fieldManager is required for apply patch")
    if config.get("metadata", {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    base: Object = copy(current) if current else {}
    entries = list(base.get("metadata", {}).get("managedFields") or [])
    leaves = dict(_leaves(config, strategic))
    if not force:
        _refuse_conflicts(base, leaves, entries, manager, strategic)
    mine = _owned(entries, manager)
    others = set().union(
        *(_owned(entries, name) for name in {e.get("manager") for e in entries} - {manager})
    )
    for path in sorted(mine - set(leaves) - others, key=len):
        _remove(base, path)  # a list item goes before, and with, the fields in it
    result: Object = _merge(base, config, strategic)
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
    base: Object, leaves: dict[Path, Any], entries: list[Object], manager: str, strategic: bool
) -> None:
    present = dict(_leaves(base, strategic))
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


def _leaves(
    value: Any, strategic: bool, path: Path = (), field: str = ""
) -> Iterator[tuple[Path, Any]]:
    if path in _NOT_OWNED or path[-1:] == ("managedFields",):
        return
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, strategic, (*path, key), key)
        return
    parent = path[-2] if len(path) > 1 else ""
    key_name = merge_key(parent, field) if strategic and isinstance(value, list) else None
    if key_name and all(isinstance(item, dict) and key_name in item for item in value):
        for item in value:
            step = f"k:{key_name}={item[key_name]}"
            yield (*path, step), None
            for name, inner in item.items():
                yield from _leaves(inner, strategic, (*path, step, name), name)
        return
    yield path, value


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


def _merge(base: Any, config: Any, strategic: bool, parent: str = "", field: str = "") -> Any:
    if isinstance(config, dict) and isinstance(base, dict):
        result = dict(base)
        for key, value in config.items():
            if value is not None:
                result[key] = _merge(base.get(key), value, strategic, field, key)
        return result
    key_name = merge_key(parent, field) if strategic else None
    if not (key_name and isinstance(config, list) and isinstance(base, list)):
        return config
    result_list = list(base)
    for item in config:
        index = _find(result_list, f"k:{key_name}={item.get(key_name)}")
        if index is None:
            result_list.append(item)
        else:
            result_list[index] = _merge(result_list[index], item, strategic, parent, field)
    return result_list
