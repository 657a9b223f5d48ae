"""Objects in the form in which the cache keeps them: text, and what decisions read. Pure."""

from typing import Any

import msgspec

from dray.kube.convert import (
    UNREADABLE,
    claim_from,
    group_key,
    pod_from,
    revision_of,
    why_unreadable,
)
from dray.kube.object_text import object_from, text_of
from dray.kube.ports import CLAIMS, PODS, Object, Resource
from dray_claim_controller.cache.cached_objects import cached_pod, unreadable_pod
from dray_claim_controller.cache.object_texts import ObjectText
from dray_claim_controller.cache.resources import name_of, read


class ConvertedObject(msgspec.Struct, frozen=True, gc=False):
    """One version of an object; making it is most of the cost of applying an event."""

    name: str
    """``namespace/name``, or the name of what has no namespace."""
    version: ObjectText
    """A pod's text is empty: ``value`` has it."""
    value: Any
    """Of a claim ``Claim``, of a pod ``CachedPod``, of other kinds what ``read`` returns."""
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


def _converted_pod(obj: Object, version: ObjectText) -> ConvertedObject:
    name = name_of(obj)
    try:
        concerns = obj["spec"].get("resourceClaims") or group_key(obj) is not None
        pod = pod_from(obj) if concerns else None
        cached = cached_pod(obj, pod, version.revision)
    except UNREADABLE as error:
        unreadable = unreadable_pod(obj, version.revision)
        return ConvertedObject(name, version, unreadable, why_unreadable(error))
    return ConvertedObject(name, version, cached)
