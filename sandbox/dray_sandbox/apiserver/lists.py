"""Lists: selectors, versions, and pages that stay consistent."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from .resources import ApiResource
from .selectors import predicate
from .status import ApiError, Object, bad_request
from .store import Store


@dataclass(frozen=True)
class Page:
    """Items of one answer and the list's metadata."""

    items: list[Object]
    meta: Object


def list_page(
    store: Store, resource: ApiResource, namespace: str, query: Mapping[str, str]
) -> Page:
    """The objects of a list request; 400, 410 or 504 if it can't be answered."""
    matches = predicate(
        query.get("labelSelector", ""), query.get("fieldSelector", ""), resource.field_selectors
    )
    limit = number(query.get("limit") or "0")
    version, start = store.version, ("", "")
    if query.get("continue"):
        version, start = _read_token(query["continue"])
    elif query.get("resourceVersion"):
        _check_version(store, query["resourceVersion"])
        if query.get("resourceVersionMatch") == "Exact":
            version = int(query["resourceVersion"])
    if version == store.version:
        matching = store.items(resource.store_key, namespace, matches)
    else:
        matching = store.items_at(resource.store_key, namespace, version, matches)
    if query.get("continue"):
        matching = [item for item in matching if _position(item) > start]
    meta: Object = {"resourceVersion": str(version)}
    if limit and len(matching) > limit:
        meta["continue"] = _token(version, _position(matching[limit - 1]))
        if not query.get("labelSelector") and not query.get("fieldSelector"):
            meta["remainingItemCount"] = len(matching) - limit
        matching = matching[:limit]
    return Page(matching, meta)


def number(text: str) -> int:
    """A whole number of a query; 400 for anything else."""
    try:
        return int(text)
    except ValueError as error:
        message = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise bad_request(message) from error


def check_number(text: str) -> None:
    """400 for a version that is not a number."""
    if not text.isdigit():
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )


def _check_version(store: Store, text: str) -> None:
    """400 for a version that is not a number, 504 for a future one."""
    check_number(text)
    if int(text) > store.version:
        message = f"Timeout: Too large resource version: {text}, current: {store.version}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise ApiError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def _position(item: Object) -> tuple[str, str]:
    meta = item["metadata"]
    return (meta.get("namespace", ""), meta["name"])


def _token(version: int, after: tuple[str, str]) -> str:
    raw = msgspec.json.encode({"v": "dray/v1", "rv": version, "after": after})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        padded = token + "=" * (-len(token) % 4)
        content = msgspec.json.decode(base64.urlsafe_b64decode(padded))
        return int(content["rv"]), (content["after"][0], content["after"][1])
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
