"""Objects in the form in which the cache keeps them: text, and what decisions read. Pure."""

from functools import lru_cache
from typing import Any, Final

import msgspec

from dray.api.claims import Claim, ClaimSpec
from dray.api.pods import Pod
from dray.kube.convert import (
    UNREADABLE,
    claim_from,
    claim_from_fields,
    claim_spec_from,
    group_key,
    pod_from,
    revision_of,
    why_unreadable,
)
from dray.kube.convert_pods import has_accounting_claim
from dray.kube.object_fields import (
    HAS_FIELDS,
    claim_spec_fields,
    fields_of,
    text_without_managed_fields,
)
from dray.kube.object_text import object_from, text_of
from dray.kube.ports import CLAIMS, PODS, Object, Resource
from dray_claim_controller.cache.cached_objects import cached_pod, checked_pod, unreadable_pod
from dray_claim_controller.cache.object_texts import ObjectText
from dray_claim_controller.cache.resources import name_of, read, read_fields

_SHARED_SPECS: Final = 4096
_SHARED_SPEC_BYTES: Final = 4096
"""The longest text of a claim's spec that is converted once for all claims with the same text."""


class ConvertedObject(msgspec.Struct, frozen=True, gc=False):
    """One version of an object; making it is most of the cost of applying an event."""

    name: str
    """``namespace/name``, or the name of an object without a namespace."""
    version: ObjectText
    """A pod's text is empty: ``value`` has it."""
    value: Any
    """``Claim`` for a claim, ``CachedPod`` for a pod, the result of ``read`` for other kinds."""
    why_unreadable: str = ""

    @property
    def uid(self) -> str:
        """The object's UID."""
        return self.version.uid

    @property
    def revision(self) -> int:
        """The object's resourceVersion."""
        return self.version.revision

    @property
    def object(self) -> Object:
        """The object, if ``version`` has its text."""
        return object_from(self.version.text)


class UnchangedObject(msgspec.Struct, frozen=True, gc=False):
    """An object of a list that the cache has in the same version."""

    uid: str
    revision: int


ListedObject = ConvertedObject | UnchangedObject


def convert(resource: Resource, obj: Object) -> ConvertedObject:
    """The form in which the cache keeps an object that it watches."""
    revision, uid = revision_of(obj), obj["metadata"]["uid"]
    if resource is PODS:
        return _converted_pod(obj, ObjectText(uid, revision, b""))
    version = ObjectText(uid, revision, text_of(obj))
    if resource is CLAIMS:
        claim = claim_from(obj)
        return ConvertedObject(name_of(obj), version, claim, claim.spec.unreadable)
    return ConvertedObject(name_of(obj), version, *read(resource, obj))


def convert_text(resource: Resource, text: bytes) -> ConvertedObject | None:
    """The same from the object's text, in half the time. None: the text has to be decoded, because
    something in it is unusual. The text must not be nested too deep."""
    if resource.plural not in HAS_FIELDS or (fields := fields_of(resource, text)) is None:
        return None
    kept = text_without_managed_fields(text, fields["metadata"])
    if kept is None:
        return None
    name, revision, uid = name_of(fields), revision_of(fields), fields["metadata"]["uid"]
    try:
        if resource is PODS:
            pod = _pod_of_concern(fields)
            cached = cached_pod(fields, pod, revision, text=kept)
            return ConvertedObject(name, ObjectText(uid, revision, b""), cached)
        value = _claim(fields) if resource is CLAIMS else read_fields(resource, fields)
    except UNREADABLE:
        return None
    return ConvertedObject(name, ObjectText(uid, revision, kept), value)


def _claim(fields: Object) -> Claim:
    text = bytes(fields.get("spec") or b"null")
    spec = _shared_spec(text) if len(text) <= _SHARED_SPEC_BYTES else _spec(text)
    return claim_from_fields(fields, spec)


def _spec(text: bytes) -> ClaimSpec:
    return claim_spec_from(claim_spec_fields(text))


_shared_spec = lru_cache(_SHARED_SPECS)(_spec)


def _pod_of_concern(obj: Object) -> Pod | None:
    """A pod, if it has claims or is in a group."""
    has_claims = obj["spec"].get("resourceClaims") or has_accounting_claim(obj)
    return pod_from(obj) if has_claims or group_key(obj) is not None else None


def _converted_pod(obj: Object, version: ObjectText) -> ConvertedObject:
    name = name_of(obj)
    try:
        cached = checked_pod(cached_pod(obj, _pod_of_concern(obj), version.revision))
    except UNREADABLE as error:
        unreadable = unreadable_pod(obj, version.revision)
        return ConvertedObject(name, version, unreadable, why_unreadable(error))
    return ConvertedObject(name, version, cached)
