"""The message types that an expression can write: protobuf's own. CEL always knows them."""

from typing import Final

from dray.cel.types.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    wrapper_of,
)

_PROTOBUF: Final = "google.protobuf."
_WRAPPED: Final = {
    "BoolValue": BOOL, "BytesValue": BYTES, "DoubleValue": DOUBLE, "FloatValue": DOUBLE,
    "Int32Value": INT, "Int64Value": INT, "StringValue": STRING, "UInt32Value": UINT,
    "UInt64Value": UINT,
}  # fmt: skip
_JSON: Final = map_of(STRING, DYN)

MESSAGES: Final[dict[str, dict[str, Type]]] = {
    **{_PROTOBUF + name: {"value": inner} for name, inner in _WRAPPED.items()},
    _PROTOBUF + "Timestamp": {"seconds": INT, "nanos": INT},
    _PROTOBUF + "Duration": {"seconds": INT, "nanos": INT},
    _PROTOBUF + "Any": {"type_url": STRING, "value": BYTES},
    _PROTOBUF + "Struct": {"fields": map_of(STRING, DYN)},
    _PROTOBUF + "ListValue": {"values": list_of(DYN)},
    _PROTOBUF + "Value": {
        "null_value": INT,
        "number_value": DOUBLE,
        "string_value": STRING,
        "bool_value": BOOL,
        "struct_value": _JSON,
        "list_value": list_of(DYN),
    },
    _PROTOBUF + "Empty": {},
}
"""Fields of each message type."""
_TYPES: Final = {
    **{_PROTOBUF + name: wrapper_of(inner) for name, inner in _WRAPPED.items()},
    _PROTOBUF + "Timestamp": TIMESTAMP,
    _PROTOBUF + "Duration": DURATION,
    _PROTOBUF + "Any": ANY,
    _PROTOBUF + "Struct": _JSON,
    _PROTOBUF + "ListValue": list_of(DYN),
    _PROTOBUF + "Value": DYN,
    _PROTOBUF + "Empty": Type(_PROTOBUF + "Empty", (), "struct"),
}


def message_type(name: str) -> Type:
    """The type of a message literal. For most messages it is a plain CEL type."""
    return _TYPES[name]
