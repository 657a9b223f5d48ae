"""The JSON patch (RFC 6902) between two objects: ``add``, ``remove`` and ``replace``."""

from collections.abc import Iterator
from typing import Any

Operation = dict[str, Any]


def difference(old: Any, new: Any, path: str = "") -> Iterator[Operation]:
    """The operations that turn ``old`` into ``new``, in the order of ``new``'s keys.

    Lists are compared by position; a list that was empty or becomes shorter is replaced.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _of_dicts(old, new, path)
    elif isinstance(old, list) and isinstance(new, list) and 0 < len(old) <= len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            yield from difference(before, after, f"{path}/{index}")
        for after in new[len(old) :]:
            yield {"op": "add", "path": f"{path}/-", "value": after}
    elif old != new or type(old) is not type(new):  # 1 == True in Python, not in JSON
        yield {"op": "replace", "path": path, "value": new}


def _of_dicts(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[Operation]:
    for key in old:
        if key not in new:
            yield {"op": "remove", "path": f"{path}/{_escape(key)}"}
    for key, value in new.items():
        if key in old:
            yield from difference(old[key], value, f"{path}/{_escape(key)}")
        else:
            yield {"op": "add", "path": f"{path}/{_escape(key)}", "value": value}


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
