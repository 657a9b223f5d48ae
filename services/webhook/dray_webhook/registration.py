"""How an API server is told to call the webhook. Pure; the installer applies the objects."""

import base64
import json
from collections.abc import Sequence
from typing import Any

from dray.domain.names import (
    DEVICE_CLASS,
    DRAY_NAMESPACE,
    OWNER_TAINT,
    POOL_LABEL,
    PREFIX,
    SHAPE,
    TFLOPS_REQUEST,
)
from dray.kube.ports import CLAIMS, POOLS, TEMPLATES
from dray_webhook.pools import service_users

MUTATE_PODS = "/mutate-pods"
MUTATE_CLAIMS = "/mutate-claims"
VALIDATE_PODS = "/validate-pods"
VALIDATE_CLAIMS = "/validate-claims"
VALIDATE_POOLS = "/validate-pools"
NAME = "dray-webhook"
NONSENSE = "as much as there is"
API = "admissionregistration.k8s.io/v1"


def _annotated(variable: str) -> str:
    return (
        f"has({variable}.metadata.annotations) && "
        f'{variable}.metadata.annotations.exists(name, name.startsWith("{PREFIX}"))'
    )


ANNOTATED = _annotated("object")
"""Pods without our annotations never reach the webhook."""


def _changed(path: str, absent: str) -> str:
    new, old = (
        f"(has({variable}.{path}) ? {variable}.{path} : {absent})"
        for variable in ("object", "oldObject")
    )
    return f"{new} != {old}"


WRITTEN_CHANGED = " || ".join(
    [
        _changed("metadata.annotations", "{}"),
        _changed("spec.schedulerName", '""'),
        _changed("spec.tolerations", "[]"),
    ]
)
"""Lifting a gate or setting an image is nobody's business here."""
NOT_ADMITTED = f'{ANNOTATED} && !("{SHAPE}" in object.metadata.annotations)'
"""Annotations that a later mutating webhook added: ours had its turn without them, and a webhook
that wasn't called is not called again (``reinvocationPolicy`` notwithstanding)."""


def _of_our_class(spec: str) -> str:
    ours = f'.deviceClassName == "{DEVICE_CLASS}"'
    return (
        f"has({spec}.devices) && has({spec}.devices.requests) && "
        f"{spec}.devices.requests.exists(one, (has(one.exactly) && one.exactly{ours}) || "
        f"(has(one.firstAvailable) && one.firstAvailable.exists(each, each{ours})))"
    )


OUR_CLAIM = _of_our_class("object.spec")
OUR_TEMPLATE = f"has(object.spec.spec) && {_of_our_class('object.spec.spec')}"


def _selector(variable: str) -> str:
    path = f"{variable}.spec.nodeSelector"
    return f"(has({variable}.spec) && has({path}) ? [{path}] : [])"


_SELECTOR_CHANGED = (
    f"request.operation == 'CREATE' || {_selector('object')} != {_selector('oldObject')}"
)
"""Users who change something else of a pool were warned before."""


def _tolerating(spec: str) -> str:
    covers = f'!has(each.key) || each.key == "" || each.key == "{OWNER_TAINT}"'
    some = f".tolerations.exists(each, {covers})"
    return (
        f"has({spec}.devices) && has({spec}.devices.requests) && "
        f"{spec}.devices.requests.exists(one, "
        f"(has(one.exactly) && has(one.exactly.tolerations) && one.exactly{some}) || "
        "(has(one.firstAvailable) && one.firstAvailable.exists(sub, "
        f"has(sub.tolerations) && sub{some})))"
    )


_LABELLED = f'has(object.metadata.labels) && "{POOL_LABEL}" in object.metadata.labels'
DRAYS_CLAIM = f"({OUR_CLAIM}) || ({_LABELLED})"
"""What dray allocates: claims of our class, and of any class in one of its pools."""
STRANGE_CLAIM = f"!({DRAYS_CLAIM})"
TOLERATING_CLAIM = _tolerating("object.spec")
TOLERATING_TEMPLATE = f"has(object.spec.spec) && {_tolerating('object.spec.spec')}"
"""Of whatever class: they may get past the taint that keeps kube-scheduler from dray's devices."""


def webhook_configurations(
    url: str,
    ca_bundle: bytes,
    *,
    timeout_s: int = 5,
    name: str = NAME,
    trusted: Sequence[str] = service_users(DRAY_NAMESPACE),
) -> list[dict[str, Any]]:
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration.

    ``url`` is the webhook's root (``https://127.0.0.1:8443``), ``ca_bundle`` the PEM of its CA.
    ``trusted`` users update pods without asking. Nobody's update waits for a webhook that is away.
    """
    strangers = f"!(request.userInfo.username in {json.dumps([*trusted])})"
    called = _Call(url.rstrip("/"), base64.b64encode(ca_bundle).decode(), timeout_s)
    return [
        _configuration("MutatingWebhookConfiguration", name, _mutating(called, strangers)),
        _configuration("ValidatingWebhookConfiguration", name, _validating(called)),
    ]


def senseless_pod(namespace: str = "default") -> dict[str, Any]:
    """A pod that the webhook denies for its ``tflops-request``: who makes one in a dry run learns
    whether the API server calls the webhook."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "dray-probe",
            "namespace": namespace,
            "annotations": {TFLOPS_REQUEST: NONSENSE},
        },
        "spec": {"containers": [{"name": "probe", "image": "dray.dev/probe"}]},
    }


_DRA = CLAIMS.group
_CREATED_CLAIM = (_DRA, CLAIMS.plural, "CREATE")
_CREATED_TEMPLATE = (_DRA, TEMPLATES.plural, "CREATE")


class _Call:
    """What all webhooks of one server share."""

    def __init__(self, root: str, ca_bundle: str, timeout_s: int) -> None:
        self._root = root
        self._ca_bundle = ca_bundle
        self._timeout_s = timeout_s

    def webhook(
        self,
        what: str,
        path: str,
        rule: dict[str, Any],
        conditions: dict[str, str],
        *,
        failure_policy: str = "Fail",
    ) -> dict[str, Any]:
        return {
            "name": f"{what}.webhook.dray.tensor-fusion.ai",
            "clientConfig": {"url": self._root + path, "caBundle": self._ca_bundle},
            "rules": [rule],
            "matchConditions": [
                {"name": name, "expression": expression} for name, expression in conditions.items()
            ],
            "matchPolicy": "Equivalent",
            "failurePolicy": failure_policy,
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": self._timeout_s,
            "admissionReviewVersions": ["v1"],
        }


def _mutating(called: _Call, strangers: str) -> list[dict[str, Any]]:
    """Pods get their claim, hand-written claims the capacities that are sold."""
    pods = called.webhook(
        "pods", MUTATE_PODS, _rule("", "pods", "CREATE"), {"annotated": ANNOTATED}
    )
    # A service to those who apply a manifest again; the API server refuses by itself what may not
    # change (policies.yaml of the chart).
    updates = called.webhook(
        "pod-updates",
        MUTATE_PODS,
        _rule("", "pods", "UPDATE"),
        {
            "annotated": f"({ANNOTATED}) || ({_annotated('oldObject')})",
            "changed": WRITTEN_CHANGED,
            "not-by-dray": strangers,
        },
        failure_policy="Ignore",
    )
    claims = called.webhook(
        "claims", MUTATE_CLAIMS, _rule(*_CREATED_CLAIM), {"our-class": OUR_CLAIM}
    )
    return [{**webhook, "reinvocationPolicy": "IfNeeded"} for webhook in (pods, updates, claims)]


def _validating(called: _Call) -> list[dict[str, Any]]:
    """What is refused once every mutating webhook has had its turn."""
    tolerating_claim = {"strange": STRANGE_CLAIM, "tolerating": TOLERATING_CLAIM}
    tolerating_template = {"strange": f"!({OUR_TEMPLATE})", "tolerating": TOLERATING_TEMPLATE}
    refused = [
        called.webhook(what, path, _rule(group, resource, operation), conditions)
        for what, path, group, resource, operation, conditions in (
            ("pods", VALIDATE_PODS, "", "pods", "CREATE", {"not-admitted": NOT_ADMITTED}),
            ("claims", VALIDATE_CLAIMS, *_CREATED_CLAIM, {"drays": DRAYS_CLAIM}),
            ("templates", VALIDATE_CLAIMS, *_CREATED_TEMPLATE, {"our-class": OUR_TEMPLATE}),
            ("tolerating-claims", VALIDATE_CLAIMS, *_CREATED_CLAIM, tolerating_claim),
            ("tolerating-templates", VALIDATE_CLAIMS, *_CREATED_TEMPLATE, tolerating_template),
        )
    ]
    # Other drivers' users don't wait for dray's webhook: it has something to say only where the
    # server drops taints.
    others = {"strange": STRANGE_CLAIM, "not-tolerating": f"!({TOLERATING_CLAIM})"}
    asked = called.webhook(
        "strange-claims",
        VALIDATE_CLAIMS,
        _rule(*_CREATED_CLAIM),
        others,
        failure_policy="Ignore",
    )
    pools = called.webhook(
        "pools",
        VALIDATE_POOLS,
        _rule(POOLS.group, POOLS.plural, "CREATE", "UPDATE", scope="Cluster"),
        {"selector-changed": _SELECTOR_CHANGED},
        failure_policy="Ignore",
    )
    return [*refused, asked, pools]


def _rule(group: str, resource: str, *operations: str, scope: str = "Namespaced") -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": list(operations),
        "resources": [resource],
        "scope": scope,
    }


def _configuration(kind: str, name: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "dray"}},
        "webhooks": webhooks,
    }
