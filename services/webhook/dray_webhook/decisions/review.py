"""``admission.k8s.io/v1`` AdmissionReview: decodes the request, encodes the answer."""

import base64
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from dray.api import json_codec
from dray.api.errors import InvalidInputError
from dray.messages.events import PodRequested
from dray.messages.rpc import Derive, Lookup

Object = dict[str, Any]
_BODY = msgspec.json.Decoder(dict[str, Any])
MAX_WARNING_LENGTH = 256
"""The API server cuts a warning here."""

DENIED = 400
RETRY = 503
"""Denied because an object could not be looked up; a retry may succeed."""


class MalformedReviewError(InvalidInputError):
    """The body is not an AdmissionReview that dray can read."""


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class GroupKind(_Model):
    """The kind under review."""

    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(_Model):
    """The requesting user. For pods of a Deployment it is the ReplicaSet controller."""

    username: str = ""
    groups: tuple[str, ...] = ()


class AdmissionRequest(_Model):
    """The parts of an AdmissionRequest that dray reads."""

    uid: str = Field(min_length=1)
    kind: GroupKind = GroupKind()
    namespace: str = ""
    name: str = ""
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"] = "CREATE"
    user_info: UserInfo = UserInfo()
    dry_run: bool | None = False
    object: Object | None = None
    old_object: Object | None = None


def annotations_of(obj: Object) -> dict[str, str]:
    """The annotations of an object under review."""
    annotations: Object = (obj.get("metadata") or {}).get("annotations") or {}
    return {name: str(value) for name, value in annotations.items()}


class _Review(_Model):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


def read_review(body: bytes) -> AdmissionRequest:
    """The request in an AdmissionReview.

    Raises:
        MalformedReviewError: no JSON, or not an AdmissionReview v1; every error is named.
    """
    try:
        return _Review.model_validate(json_codec.decode(body, _BODY)).request
    except msgspec.DecodeError as error:
        raise MalformedReviewError(
            f"expected an AdmissionReview of admission.k8s.io/v1, but the body can't be read: "
            f"{error}"
        ) from error
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, entry['loc'])) or 'body'}: {entry['msg']}"
            for entry in error.errors(include_url=False, include_input=False)
        )
        raise MalformedReviewError(
            f"expected an AdmissionReview of admission.k8s.io/v1, but {wrong}"
        ) from error


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """The webhook's decision.

    ``unresolved`` are objects that the answer depends on: look them up and decide again.
    ``requested`` is the event to publish, unless the request was a dry run. ``derive`` is the
    template to ask for before that.
    """

    allowed: bool = True
    patch: tuple[Object, ...] = ()
    warnings: tuple[str, ...] = ()
    message: str = ""
    code: int = 200
    unresolved: tuple[Lookup, ...] = ()
    requested: PodRequested | None = field(default=None, compare=False)
    derive: Derive | None = field(default=None, compare=False)


_REASONS = {DENIED: "BadRequest", 403: "Forbidden", RETRY: "ServiceUnavailable"}


def write_review(uid: str, answer: AdmissionAnswer) -> Object:
    """The AdmissionReview that carries ``answer``."""
    response: Object = {"uid": uid, "allowed": answer.allowed}
    if answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(answer.patch)).decode()
    if answer.warnings:
        response["warnings"] = [warning[:MAX_WARNING_LENGTH] for warning in answer.warnings]
    if not answer.allowed:
        response["status"] = {
            "code": answer.code,
            "reason": _REASONS.get(answer.code, ""),
            "message": answer.message,
        }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
