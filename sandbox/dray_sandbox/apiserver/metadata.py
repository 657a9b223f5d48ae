"""metadata of every object: names, generated names, fields that updates can't change."""

import datetime
import secrets
import uuid
from collections.abc import Callable

from .names import annotation_errors, dns_label, dns_subdomain, label_errors, qualified_name
from .status import FieldError, Object, forbidden_field, invalid, required

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_BASE = 58
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_UNQUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"
NameRule = Callable[[str], list[str]]


def now() -> str:
    """The time in the form of metadata.creationTimestamp."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def name_rule(plural: str) -> NameRule:
    """The syntax of names of a resource."""
    return dns_label if plural in ("namespaces", "services") else dns_subdomain


def generate_name(meta: Object) -> None:
    """Generate the name of an object without one from its generateName."""
    base = meta.get("generateName", "")
    if base and not meta.get("name"):
        suffix = "".join(secrets.choice(_ALPHABET) for _ in range(5))
        meta["name"] = base[:_LONGEST_BASE] + suffix


def fill_new(meta: Object) -> None:
    """Set the server's fields at creation."""
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
        meta.pop(field, None)
    meta["uid"] = str(uuid.uuid4())
    meta["creationTimestamp"] = now()


def tidy(meta: Object) -> None:
    """Drop empty maps and lists, as `omitempty` does."""
    for field in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        if field in meta and not meta[field]:
            del meta[field]


def errors(meta: Object, rule: NameRule, *, built_in: bool = True) -> list[FieldError]:
    """Findings about metadata; custom resources may have any finalizer."""
    field = "metadata"
    found: list[FieldError] = []
    if not meta.get("name"):
        if not meta.get("generateName"):
            found.append(required(f"{field}.name", "name or generateName is required"))
    else:
        found += [invalid(f"{field}.name", meta["name"], text) for text in rule(meta["name"])]
    found += label_errors(meta.get("labels") or {}, f"{field}.labels")
    found += annotation_errors(meta.get("annotations") or {}, f"{field}.annotations")
    for index, name in enumerate(meta.get("finalizers") or []):
        where = f"{field}.finalizers[{index}]"
        found += [invalid(f"{field}.finalizers", name, text) for text in qualified_name(name)]
        if built_in and "/" not in name and name not in _STANDARD_FINALIZERS:
            found.append(invalid(where, name, _UNQUALIFIED))
    for owner in meta.get("ownerReferences") or []:
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                where = f"{field}.ownerReferences.{key}"
                found.append(invalid(where, "", "must not be empty"))
    return found


def keep_server_fields(new: Object, old: Object) -> None:
    """Reset the server's fields of an update."""
    for field in (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "selfLink",
    ):
        new.pop(field, None)
        if field in old:
            new[field] = old[field]
    new["name"] = old["name"]
    if "namespace" in old:
        new["namespace"] = old["namespace"]


def update_errors(new: Object, old: Object) -> list[FieldError]:
    """Findings about a change of metadata."""
    if "deletionTimestamp" not in old:
        return []
    before = old.get("finalizers") or []
    added = [name for name in new.get("finalizers") or [] if name not in before]
    if not added:
        return []
    listed = ", ".join(f'"{name}"' for name in sorted(added))
    text = (
        "no new finalizers can be added if the object is being deleted, "
        f"found new finalizers []string{{{listed}}}"
    )
    return [forbidden_field("metadata.finalizers", text)]
