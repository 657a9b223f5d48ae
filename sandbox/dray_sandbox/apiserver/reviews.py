"""Reviews of the requester (`kubectl auth can-i`, `whoami`), who has all rights, and of tokens."""

from typing import Any

import msgspec

from .serviceaccounts import ServiceAccountTokens
from .status import Object


def review(
    group: str, plural: str, raw: bytes, who: Object, tokens: ServiceAccountTokens
) -> Object:
    """The answer to a review. The body of a self-review may be protobuf: its answer does not
    depend on it."""
    body: Any = {}
    if raw.lstrip().startswith(b"{"):
        try:
            body = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            body = {}
    kinds: dict[str, tuple[str, Object]] = {
        "selfsubjectaccessreviews": (
            "SelfSubjectAccessReview",
            {"allowed": True, "reason": "the sandbox has no RBAC"},
        ),
        "selfsubjectrulesreviews": (
            "SelfSubjectRulesReview",
            {
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": False,
            },
        ),
        "selfsubjectreviews": ("SelfSubjectReview", {"userInfo": who}),
    }
    if plural == "tokenreviews":
        kinds[plural] = ("TokenReview", tokens.review(body.get("spec") or {}))
    kind, status = kinds[plural]
    return {
        "kind": kind,
        "apiVersion": f"{group}/v1",
        "metadata": {"creationTimestamp": None},
        "spec": body.get("spec") or {},
        "status": status,
    }
