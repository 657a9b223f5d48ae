"""The JSON text of Kubernetes objects. Caches keep it: it needs a sixth of the memory. Pure."""

from typing import Any, Final

import msgspec

from dray.api import json_codec
from dray.kube.ports import Object

_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def text_of(obj: Object) -> bytes:
    """The JSON text of an object, without ``managedFields``, which nobody reads."""
    metadata = obj.get("metadata")
    if isinstance(metadata, dict) and "managedFields" in metadata:
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        obj = {**obj, "metadata": kept}
    return msgspec.json.encode(obj)


def object_from(text: bytes) -> Object:
    """The object of a text from ``text_of``, decoded like a response of the API server."""
    return json_codec.decode(text, _OBJECT, opaque=json_codec.opaque_parts(text))
