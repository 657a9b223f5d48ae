"""Metadata of Kubernetes objects: revisions, times, owners, tolerations."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeGuard

from dray.api.devices import Taint, Toleration
from dray.kube.ports import Object

LONGEST_ATTEMPT: Final = 18
"""Maximum digits of an attempt: epochs may be seconds since 1970, and derived numbers must fit 64
bits."""

_REVISION_DIGITS: Final = 20


def is_revision(text: object) -> TypeGuard[str]:
    """Whether a value is a resourceVersion as servers write it: digits that fit 64 bits."""
    return (
        isinstance(text, str)
        and len(text) <= _REVISION_DIGITS
        and text.isascii()
        and text.isdecimal()
    )


def revision_of(obj: Object) -> int:
    """The object's resourceVersion; comparable since Kubernetes 1.35 (KEP-5504). 0: none."""
    return int(obj.get("metadata", {}).get("resourceVersion") or 0)


def time_from(text: str | None) -> float:
    """An RFC 3339 time as seconds since 1970; 0 if there is none."""
    if not text:
        return 0.0
    return datetime.fromisoformat(text).timestamp()


def time_to(unix_s: float) -> str:
    """``metav1.Time``: whole seconds, UTC."""
    return datetime.fromtimestamp(int(unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def annotation(obj: Object, name: str) -> str:
    """An annotation's value, or empty."""
    return str((obj["metadata"].get("annotations") or {}).get(name, ""))


def attempt_annotation(obj: Object, name: str) -> int:
    """An annotation that holds an attempt; 0 if it is absent, or not a number that dray
    writes."""
    text = annotation(obj, name)
    return int(text) if text.isdecimal() and len(text) <= LONGEST_ATTEMPT else 0


def label(obj: Object, name: str) -> str:
    """A label's value, or empty."""
    return str((obj["metadata"].get("labels") or {}).get(name, ""))


def is_deleting(obj: Object) -> bool:
    """Whether deletion has begun."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def controlling_pod(obj: Object) -> tuple[str, str]:
    """UID and name of the pod that controls the object, or two empty texts. Raises TypeError if
    they are not texts."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == "Pod" and owner.get("controller"):
            uid, name = owner["uid"], owner["name"]
            if not (isinstance(uid, str) and isinstance(name, str)):
                raise TypeError("uid or name of the controlling pod is not a string")
            return uid, name
    return "", ""


def tolerations_from(entries: Iterable[Mapping[str, Any]] | None) -> tuple[Toleration, ...]:
    """Tolerations of a pod or of a device request."""
    return tuple(
        Toleration(
            key=entry.get("key") or "",
            operator=entry.get("operator") or "Equal",
            value=entry.get("value") or "",
            effect=entry.get("effect") or "",
        )
        for entry in entries or ()
    )


def taints_from(entries: Iterable[Mapping[str, Any]] | None) -> tuple[Taint, ...]:
    """Taints of a node or of a device."""
    return tuple(
        Taint(entry["key"], entry.get("value") or "", entry["effect"]) for entry in entries or ()
    )
