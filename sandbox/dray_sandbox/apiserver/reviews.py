"""Questions about the asker (`kubectl auth can-i`, `whoami`): everybody known may do anything."""

from __future__ import annotations

from typing import Any

import msgspec

from .status import Object


def review(group: str, plural: str, raw: bytes, who: Object) -> Object:
    """The answer to a self-review. The body may be protobuf: the answer doesn't depend on it."""
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
    kind, status = kinds[plural]
    return {
        "kind": kind,
        "apiVersion": f"{group}/v1",
        "metadata": {"creationTimestamp": None},
        "spec": body.get("spec") or {},
        "status": status,
    }
