"""Reads HTTP requests: the resource of a path, the user, the body."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from dray.api import json_codec

from . import protobuf
from .context import Context
from .status import ApiError, Object, bad_request, unauthorized, unsupported_media_type

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ms|s|m|h)")
"""Go's durations with one unit."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_ANYTHING = msgspec.json.Decoder[Any]()
_MOST_NESTING = 10_000
"""The limit of nested containers in Go's JSON decoder."""
_AUTHENTICATED = "system:authenticated"
DEPRECATION: web.RequestKey[str] = web.RequestKey("deprecation", str)
"""The request key of the deprecation warning of its API version."""
WARNINGS: web.RequestKey[list[str]] = web.RequestKey("warnings", list)
"""The request key of the warnings so far; a refusal contains them, too."""


@dataclass(frozen=True)
class Target:
    """The target of a path; empty parts are absent."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Target | None:
    """The target of `/api/v1/…` or `/apis/GROUP/VERSION/…`; None for other paths."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    within = rest[0] == "namespaces" and len(rest) > 2 and not _of_namespace(rest)
    if within:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    name, subresource = ([*rest[1:], "", ""])[:2]
    return Target(group, version, rest[0], namespace, name, subresource)


def _of_namespace(rest: list[str]) -> bool:
    """Whether the path is about a namespace, not in it, such as `namespaces/NAME/status`."""
    return len(rest) == 3 and rest[2] in ("status", "finalize")


class Tokens:
    """Users by bearer token, from a file in kube-apiserver's CSV format."""

    def __init__(self, users: Mapping[str, Object]) -> None:
        self._users = dict(users)

    @staticmethod
    def load(path: Path) -> Tokens:
        """Read `token,user,uid,"group1,group2"` lines; ValueError names a bad line."""
        users = {}
        with open(path, newline="") as file:
            for number, row in enumerate(csv.reader(file), start=1):
                if not row:
                    continue
                if len(row) < 3 or not row[0].strip():
                    raise ValueError(
                        f"{path} line {number} has {len(row)} columns; expected "
                        'token,user,uid[,"group1,group2"]'
                    )
                groups = [g.strip() for g in row[3].split(",")] if len(row) > 3 and row[3] else []
                users[row[0].strip()] = user(row[1].strip(), row[2].strip(), groups)
        return Tokens(users)

    def user(self, request: web.Request) -> Object:
        """The user; 401 for a missing or unknown token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        found = self._users.get(token.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise unauthorized()
        return found


def user(name: str, uid: str, groups: list[str]) -> Object:
    """A userInfo."""
    return {"username": name, "uid": uid, "groups": [*groups, _AUTHENTICATED]}


def context_of(request: web.Request, who: Object) -> Context:
    """The options of a write from its query; 400 for unknown values."""
    query = request.query
    dry_run = query.getall("dryRun", [])
    if any(value != "All" for value in dry_run):
        raise bad_request(f"dryRun: Unsupported value: {dry_run}: supported values: All")
    validation = query.get("fieldValidation") or "Warn"
    if validation not in ("Strict", "Warn", "Ignore"):
        raise bad_request(f"fieldValidation: Unsupported value: {validation!r}")
    agent = request.headers.get("User-Agent", "").partition("/")[0]
    manager = query.get("fieldManager") or agent or "unknown"
    return Context(who, bool(dry_run), manager, validation)


async def body_of(request: web.Request) -> Any:
    """The decoded body; 400 for none or a broken one, 415 for protobuf and other formats."""
    kind = request.content_type
    if kind not in _FORMATS:
        raise unsupported_media_type(kind, sorted(_FORMATS))
    raw = await request.read()
    if not raw.strip():
        raise bad_request("the body of the request is empty")
    if kind == protobuf.CONTENT_TYPE:
        return protobuf.decode(raw)
    try:
        if json_codec.is_deeper(raw, _MOST_NESTING):
            raise bad_request("json parse error: exceeded max depth")
        return json_codec.decode(raw, _ANYTHING)
    except msgspec.DecodeError as error:
        if "yaml" not in kind:
            raise bad_request(f"the body of the request is not JSON: {error}") from error
    return _yaml(raw)


_FORMATS = {
    "application/json",
    "application/yaml",
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    APPLY_PATCH,
    "application/octet-stream",
    protobuf.CONTENT_TYPE,
}


def _yaml(raw: bytes) -> Any:
    try:
        return plain(YAML(typ="safe", pure=True).load(raw.decode()))
    except (YAMLError, UnicodeDecodeError) as error:
        raise bad_request(f"the body of the request is not YAML: {error}") from error


def plain(value: Any) -> Any:
    """The value with YAML's dates as texts again."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return value.isoformat() if isinstance(value, date) else value


def wants_table(request: web.Request) -> bool:
    """Does the client prefer a Table?"""
    return any(
        "as=Table" in entry and "v=v1;" in entry.replace(" ", "") + ";"
        for entry in request.headers.get("Accept", "").split(",")
    )


def timeout_of(request: web.Request) -> float | None:
    """The longest duration of the request in seconds, from its parameter `timeout`; None: no limit.
    See `filters.WithRequestDeadline`."""
    text = request.query.get("timeout", "")
    if not text:
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        raise bad_request(
            f'invalid timeout specified in the request URL - time: invalid duration "{text}"'
        )
    return float(match[1]) * _SECONDS[match[2]] or None


def flag(request: web.Request, name: str) -> bool:
    """A boolean query parameter."""
    return request.query.get(name, "").lower() in ("true", "1")


def answer(body: Any, code: int = 200, warnings: list[str] | None = None) -> web.Response:
    """A JSON answer with its warnings as headers (RFC 7234, code 299)."""
    response = web.Response(
        body=msgspec.json.encode(body), status=code, content_type="application/json"
    )
    for text in dict.fromkeys(warnings or []):
        warned(response, text)
    return response


def warned(response: web.StreamResponse, text: str) -> web.StreamResponse:
    """The answer with one more warning, if there is one and the answer has not begun."""
    if text and not response.prepared:
        quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def failure(error: ApiError) -> web.Response:
    """The answer for an error."""
    response = answer(error.body(), error.code)
    if error.code == 429:
        wait_s = (error.details or {}).get("retryAfterSeconds")
        if wait_s:
            response.headers["Retry-After"] = str(wait_s)
    return response
