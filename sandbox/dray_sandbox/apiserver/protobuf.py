"""Decodes protobuf bodies that kubectl sends, for example of `kubectl create namespace`, `drain`.

kubectl's typed commands send Kubernetes' protobuf (magic, then runtime.Unknown) and read JSON.
Only the fields named in the tables below are read; their numbers are those of the
`generated.proto` files of k8s.io/api and k8s.io/apimachinery.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .status import Object, bad_request, unsupported_media_type

MAGIC = b"k8s\x00"
CONTENT_TYPE = "application/vnd.kubernetes.protobuf"


@dataclass(frozen=True)
class ProtobufField:
    """One field: its JSON name, its kind, and the fields of a message."""

    name: str
    kind: str = "string"
    """string, bytes, int, bool, message, string-map or bytes-map."""
    fields: Message | None = None
    repeated: bool = False


Message = dict[int, ProtobufField]
_METADATA: Message = {
    1: ProtobufField("name"),
    2: ProtobufField("generateName"),
    3: ProtobufField("namespace"),
    11: ProtobufField("labels", "string-map"),
    12: ProtobufField("annotations", "string-map"),
    14: ProtobufField("finalizers", repeated=True),
}
_META = ProtobufField("metadata", "message", _METADATA)
_PRECONDITIONS: Message = {1: ProtobufField("uid"), 2: ProtobufField("resourceVersion")}
_DELETE_OPTIONS: Message = {
    1: ProtobufField("gracePeriodSeconds", "int"),
    2: ProtobufField("preconditions", "message", _PRECONDITIONS),
    3: ProtobufField("orphanDependents", "bool"),
    4: ProtobufField("propagationPolicy"),
    5: ProtobufField("dryRun", repeated=True),
}
_KINDS: dict[tuple[str, str], Message] = {
    ("v1", "Namespace"): {1: _META},
    ("v1", "ConfigMap"): {
        1: _META,
        2: ProtobufField("data", "string-map"),
        3: ProtobufField("binaryData", "bytes-map"),
        4: ProtobufField("immutable", "bool"),
    },
    ("v1", "Secret"): {
        1: _META,
        2: ProtobufField("data", "bytes-map"),
        3: ProtobufField("type"),
        4: ProtobufField("stringData", "string-map"),
        5: ProtobufField("immutable", "bool"),
    },
    ("v1", "ServiceAccount"): {1: _META},
    ("policy/v1", "Eviction"): {
        1: _META,
        2: ProtobufField("deleteOptions", "message", _DELETE_OPTIONS),
    },
    ("v1", "DeleteOptions"): _DELETE_OPTIONS,
    ("meta.k8s.io/v1", "DeleteOptions"): _DELETE_OPTIONS,
}


def decode(raw: bytes) -> Object:
    """The JSON form of a body; 415 for a kind without a table, 400 for an invalid body."""
    if not raw.startswith(MAGIC):
        raise bad_request("the body of the request has no Kubernetes protobuf magic")
    try:
        envelope = dict(_fields(raw[len(MAGIC) :]))
        type_meta = dict(_fields(envelope.get(1, b"")))
        version, kind = type_meta.get(1, b"").decode(), type_meta.get(2, b"").decode()
        table = _KINDS.get((version, kind))
        if table is None:
            seen = f"{CONTENT_TYPE} of {version}, {kind}"
            raise unsupported_media_type(seen, ["application/json"])
        content = _message(envelope.get(2, b""), table)
    except (IndexError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise bad_request(f"the body of the request is not protobuf: {error}") from error
    return {"apiVersion": version, "kind": kind, **content}


def _message(raw: bytes, table: Message) -> Object:
    result: Object = {}
    for number, value in _fields(raw):
        field = table.get(number)
        if field is None:
            continue
        if field.kind.endswith("-map"):
            key, entry = _entry(value, field.kind)
            result.setdefault(field.name, {})[key] = entry
        elif field.repeated:
            result.setdefault(field.name, []).append(_value(value, field))
        else:
            read = _value(value, field)
            if read not in ("", {}):
                result[field.name] = read
    return result


def _entry(raw: bytes, kind: str) -> tuple[str, str]:
    parts = dict(_fields(raw))
    value = parts.get(2, b"")
    text = base64.b64encode(value).decode() if kind == "bytes-map" else value.decode()
    return parts.get(1, b"").decode(), text


def _value(value: Any, field: ProtobufField) -> Any:
    match field.kind:
        case "message":
            return _message(value, field.fields or {})
        case "int":
            return value - (1 << 64) if value >= 1 << 63 else value
        case "bool":
            return bool(value)
        case _:
            return value.decode()


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field: bytes for length-delimited ones, int for varints."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(raw, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(raw, at)
            if at + size > len(raw):
                raise IndexError("a field is longer than the body")
            yield number, raw[at : at + size]
            at += size
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise IndexError(f"wire type {wire}")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
