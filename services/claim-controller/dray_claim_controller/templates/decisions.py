"""Which derived templates pods need, and whether an existing one is the right one. Pure.

A shape is the canonical JSON of the whole ResourceClaimTemplateSpec; the template's name ends
with the first ten hex digits of its SHA-256. An existing template is compared, never trusted.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api import json_codec
from dray.api.names import CLAIM_REFERENCE, DERIVED_FROM_LABEL, SHAPE
from dray.api.quantities import InvalidQuantityError, parse_quantity
from dray.kube.ports import TEMPLATES, Object
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule

_ANYTHING = msgspec.json.Decoder[Any]()
_HASH_DIGITS = 10
_DEFAULTS: Mapping[str, Any] = {"allocationMode": "ExactCount", "count": 1}
"""The fields that an API server adds to a request without them."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A template that a pod needs."""

    namespace: str
    name: str
    base: str
    spec: dict[str, Any]

    def manifest(self) -> Object:
        """The object to create."""
        return {
            "apiVersion": TEMPLATES.api_version,
            "kind": TEMPLATES.kind,
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {DERIVED_FROM_LABEL: self.base},
            },
            "spec": self.spec,
        }


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why no template can be derived for a pod."""

    message: str


def template_name(pod: CachedPod) -> str:
    """Name of the derived template that the pod refers to, or empty."""
    if pod.pod is None or SHAPE not in (pod.object["metadata"].get("annotations") or {}):
        return ""
    for entry in pod.pod.claims:
        if entry.reference == CLAIM_REFERENCE:
            return entry.template
    return ""


def derived(pod: CachedPod) -> Derived | Unusable | None:
    """The template the pod needs; None if it refers to none of ours."""
    name = template_name(pod)
    if not name or pod.pod is None:
        return None
    text = str(pod.object["metadata"]["annotations"][SHAPE])
    return derived_from(text, pod.pod.namespace, name)


def derived_from(text: str, namespace: str, name: str) -> Derived | Unusable:
    """The template of a shape, for a pod that refers to it by this name."""
    digits = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    if not name.endswith(f"-{digits}"):
        return Unusable(
            f"the pod refers to template {name}, but its annotation {SHAPE} has the hash "
            f"{digits}; only dray may write that annotation. Delete the pod and create it again"
        )
    shape = shape_of(text)
    if isinstance(shape, Unusable):
        return shape
    labels = (shape.get("metadata") or {}).get("labels") or {}
    base = str(labels.get(DERIVED_FROM_LABEL) or name[: -_HASH_DIGITS - 1])
    return Derived(namespace, name, base, shape)


def shape_of(text: str) -> dict[str, Any] | Unusable:
    """A pod's shape; it has a spec, and labels if it has metadata."""
    try:
        shape = json_codec.decode(text.encode(), _ANYTHING)
    except msgspec.DecodeError as error:
        return Unusable(f"annotation {SHAPE} is not JSON: {error}. Create the pod again")
    if not isinstance(shape, dict) or not isinstance(shape.get("spec"), dict):
        return Unusable(f"annotation {SHAPE} has no spec. Create the pod again")
    metadata = shape.get("metadata") or {}
    labels = metadata.get("labels") or {} if isinstance(metadata, dict) else None
    if not isinstance(labels, dict):
        return Unusable(f"annotation {SHAPE} has no labels. Create the pod again")
    return shape


def waits_for_claim(cache: ObjectCache, pod: CachedPod) -> bool:
    """Whether the claim that the derived template is for does not exist (any more)."""
    held = pod.pod
    if held is None or pod.terminal or held.deleting:
        return False
    return any(
        entry.reference == CLAIM_REFERENCE
        and entry.template
        and cache.claim_named(held.namespace, entry.claim) is None
        for entry in held.claims
    )


def difference(wanted: Any, existing: Any, path: str = "spec") -> str | None:
    """The first place where an existing spec is not the wanted one, or None.

    Fields that the server defaults may be there although nobody wrote them, and quantities
    may be spelt differently.
    """
    if isinstance(wanted, Mapping) and isinstance(existing, Mapping):
        return _differing_field(wanted, existing, path)
    if isinstance(wanted, list) and isinstance(existing, list) and len(wanted) == len(existing):
        for index, (left, right) in enumerate(zip(wanted, existing, strict=True)):
            if found := difference(left, right, f"{path}[{index}]"):
                return found
        return None
    if _same_value(wanted, existing) or (
        ".capacity.requests." in path and _same_amount(wanted, existing)
    ):
        return None
    return f"{path} is {existing!r}, expected {wanted!r}"


def _differing_field(
    wanted: Mapping[str, Any], existing: Mapping[str, Any], path: str
) -> str | None:
    for name, value in wanted.items():
        if name not in existing:
            if value in ({}, [], None):
                continue
            return f"{path}.{name} is missing"
        if found := difference(value, existing[name], f"{path}.{name}"):
            return found
    for name, value in existing.items():
        if name in wanted or value in ({}, [], None, _DEFAULTS.get(name)):
            continue
        return f"{path}.{name} is {value!r}, expected nothing"
    return None


def _same_value(left: Any, right: Any) -> bool:
    """As in JSON, where 1 and 1.0 are the same number, and true is not a number."""
    if isinstance(left, msgspec.Raw) or isinstance(right, msgspec.Raw):
        return json_codec.canonical(left) == json_codec.canonical(right)
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _same_amount(left: Any, right: Any) -> bool:
    try:
        return parse_quantity(str(left)) == parse_quantity(str(right))
    except InvalidQuantityError:
        return False


def affected_by_base(
    pods: Iterable[CachedPod], namespace: str, name: str, dray_namespace: str, bases: Iterable[str]
) -> list[CachedPod]:
    """Waiting pods whose shape was made from a base template that was replaced since.

    ``bases`` are all base templates as ``namespace/name``: a pod takes the one in its own
    namespace before the one in dray's.
    """
    known = set(bases)
    found = []
    for pod in pods:
        if pod.pod is None or pod.node or pod.terminal or pod.pod.deleting:
            continue
        own = f"{pod.pod.namespace}/{name}" in known
        looked_up = pod.pod.namespace if own else dray_namespace
        made_from = derived(pod)
        if isinstance(made_from, Derived) and (made_from.base, looked_up) == (name, namespace):
            found.append(pod)
    return found


class Needed(msgspec.Struct, frozen=True):
    """The template that a pod waits for."""

    wanted: Derived
    exists: bool
    difference: str | None = None
    """How the existing one differs from it."""


class Template(RecordedRule[Needed | Unusable | None], frozen=True, kw_only=True, tag="template"):
    """The template that a pod waits for, if it does."""

    pod_uid: str

    def answer(self, cache: ObjectCache) -> Needed | Unusable | None:
        pod = cache.pods.get(self.pod_uid)
        if pod is None or not waits_for_claim(cache, pod):
            return None
        wanted = derived(pod)
        if not isinstance(wanted, Derived):
            return wanted
        name = f"{wanted.namespace}/{wanted.name}"
        existing = cache.plain[TEMPLATES.plural].get(name)
        if existing is None:
            return Needed(wanted, False)
        return Needed(wanted, True, difference(wanted.spec, existing.get("spec")))


def _is_present(cache: ObjectCache, cached: CachedPod) -> bool:
    """Always True: every pod counts."""
    return True


class Affected(RecordedRule[tuple[str, ...]], frozen=True, kw_only=True, tag="affected"):
    """UIDs of the waiting pods whose base template was replaced."""

    namespace: str
    name: str
    dray_namespace: str
    bases: tuple[str, ...]
    """All base templates as ``namespace/name``."""

    def answer(self, cache: ObjectCache) -> tuple[str, ...]:
        unbound = cache.in_order(cache.select(_is_present).values)
        pods = affected_by_base(
            (cache.pods[uid] for uid in unbound),
            self.namespace,
            self.name,
            self.dray_namespace,
            self.bases,
        )
        return tuple(pod.uid for pod in pods)
