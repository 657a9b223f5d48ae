"""The webhook configurations with which an API server calls the webhook. Pure.

The installer applies them.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

from dray.api.names import (
    DEFAULT_SCHEDULER_NAMES,
    DEVICE_CLASS,
    DRAY_NAMESPACE,
    OWNER_TAINT,
    POOL_LABEL,
    PREFIX,
    SHAPE,
    TFLOPS_REQUEST,
    VOLCANO_SCHEDULER,
)
from dray.kube.ports import CLAIMS, POD_GROUPS, POLICIES, POOLS, QUEUES, TEMPLATES
from dray_webhook.decisions.pools import service_users

MUTATE_PODS = "/mutate-pods"
MUTATE_CLAIMS = "/mutate-claims"
VALIDATE_PODS = "/validate-pods"
VALIDATE_CLAIMS = "/validate-claims"
VALIDATE_POOLS = "/validate-pools"
VALIDATE_WORKLOADS = "/validate-workloads"
MUTATE_GROUPS, VALIDATE_GROUPS = "/mutate-groups", "/validate-groups"
NAME = "dray-webhook"
INVALID_TFLOPS = "as much as there is"
_API = "admissionregistration.k8s.io/v1"


def _annotated(variable: str) -> str:
    return (
        f"has({variable}.metadata.annotations) && "
        f'{variable}.metadata.annotations.exists(name, name.startsWith("{PREFIX}"))'
    )


_ANNOTATED = _annotated("object")


def _listed(names: Sequence[str]) -> str:
    return json.dumps([*names])


def _concerned(scheduler_names: Sequence[str]) -> str:
    """Pods that have annotations of dray or name one of its schedulers; no others reach the
    webhook."""
    scheduler = "object.spec.schedulerName"
    named = f"has({scheduler}) && {scheduler} in {_listed(scheduler_names)}"
    return f"({_ANNOTATED}) || ({named})"


def _asks_by_resource(gpu_resources: Sequence[str]) -> str:
    """Pods with a container that asks for one of the resources."""
    asks = (
        "exists(one, has(one.resources) && has(one.resources.limits) && "
        f"{_listed(gpu_resources)}.exists(name, name in one.resources.limits))"
    )
    lists = ("object.spec.containers", "object.spec.initContainers")
    return " || ".join(f"(has({containers}) && {containers}.{asks})" for containers in lists)


def _changed(path: str, absent: str) -> str:
    new, old = (
        f"(has({variable}.{path}) ? {variable}.{path} : {absent})"
        for variable in ("object", "oldObject")
    )
    return f"{new} != {old}"


_WRITTEN_CHANGED = " || ".join(
    [
        _changed("metadata.annotations", "{}"),
        _changed("spec.schedulerName", '""'),
        _changed("spec.tolerations", "[]"),
    ]
)
"""Other updates, such as a lifted gate or a new image, do not concern the webhook."""
_NOT_ADMITTED = f'{_ANNOTATED} && !("{SHAPE}" in object.metadata.annotations)'
"""A later mutating webhook added these annotations. dray's webhook was not called before, because
there were none yet, and ``reinvocationPolicy`` only repeats calls."""


def _requests(spec: str) -> str:
    """The requests of a claim. The server writes null if there are none."""
    path = f"{spec}.devices.requests"
    return f"(has({spec}.devices) && has({path}) && type({path}) == list ? {path} : [])"


def _of_our_class(spec: str) -> str:
    ours = f'.deviceClassName == "{DEVICE_CLASS}"'
    return (
        f"{_requests(spec)}.exists(one, (has(one.exactly) && one.exactly{ours}) || "
        f"(has(one.firstAvailable) && one.firstAvailable.exists(each, each{ours})))"
    )


_OUR_CLAIM = _of_our_class("object.spec")
_OUR_TEMPLATE = f"has(object.spec.spec) && {_of_our_class('object.spec.spec')}"


def _selector(variable: str) -> str:
    path = f"{variable}.spec.nodeSelector"
    return f"(has({variable}.spec) && has({path}) ? [{path}] : [])"


_SELECTOR_CHANGED = (
    f"request.operation == 'CREATE' || {_selector('object')} != {_selector('oldObject')}"
)
"""Other changes of a pool are not reviewed: the first warning stands."""


def _template_annotations(variable: str) -> str:
    spec = f"{variable}.spec"
    template = f"(has({spec}.jobTemplate) ? {spec}.jobTemplate.spec.template : {spec}.template)"
    metadata = f"{template}.metadata"
    return f"(has({metadata}) && has({metadata}.annotations) ? {metadata}.annotations : {{}})"


_WORKLOAD_WITH_ANNOTATIONS = (
    f'{_template_annotations("object")}.exists(name, name.startsWith("{PREFIX}"))'
)
_TEMPLATE_CHANGED = (
    "request.operation == 'CREATE' || "
    f"{_template_annotations('object')} != {_template_annotations('oldObject')}"
)
"""Scaling and other updates of a workload do not concern the webhook."""
_NOT_OWNED = "!has(object.metadata.ownerReferences)"
"""A CronJob's controller creates its Jobs, and reads no warnings."""
_WARNING_TIMEOUT_S = 1
"""A warning is not worth a longer wait."""


def _tolerating(spec: str) -> str:
    covers = f'!has(each.key) || each.key == "" || each.key == "{OWNER_TAINT}"'
    some = f".tolerations.exists(each, {covers})"
    return (
        f"{_requests(spec)}.exists(one, "
        f"(has(one.exactly) && has(one.exactly.tolerations) && one.exactly{some}) || "
        "(has(one.firstAvailable) && one.firstAvailable.exists(sub, "
        f"has(sub.tolerations) && sub{some})))"
    )


_LABELLED = f'has(object.metadata.labels) && "{POOL_LABEL}" in object.metadata.labels'
_DRAYS_CLAIM = f"({_OUR_CLAIM}) || ({_LABELLED})"
"""The claims that dray allocates: those of its class, and those of any class in its pools."""
_FOREIGN_CLAIM = f"!({_DRAYS_CLAIM})"
_NOT_INSTALLED = f'request.namespace != "{DRAY_NAMESPACE}"'
"""The base template of an installation is created before its webhook runs."""
_TOLERATING_CLAIM = _tolerating("object.spec")
_TOLERATING_TEMPLATE = f"has(object.spec.spec) && {_tolerating('object.spec.spec')}"
"""Requests of any class may tolerate the taint that keeps kube-scheduler from dray's devices."""


def webhook_configurations(
    url: str,
    ca_bundle: bytes,
    *,
    timeout_s: int = 5,
    name: str = NAME,
    trusted: Sequence[str] = service_users(DRAY_NAMESPACE),
    scheduler_names: Sequence[str] = DEFAULT_SCHEDULER_NAMES,
    gpu_resources: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration.

    ``url`` is the webhook's root (``https://127.0.0.1:8443``), ``ca_bundle`` the PEM of its CA.
    Updates by ``trusted`` users are not sent. PodGroups and Queues of Volcano are sent if
    ``scheduler_names`` include ``volcano``. While the webhook is unavailable, updates succeed, and
    pods that ask for ``gpu_resources`` without annotations of dray are created as they are.
    """
    not_trusted = f"!(request.userInfo.username in {json.dumps([*trusted])})"
    endpoint = _Endpoint(url.rstrip("/"), base64.b64encode(ca_bundle).decode(), timeout_s)
    mutating = _mutating(endpoint, not_trusted, scheduler_names, gpu_resources)
    validating = [*_validating(endpoint), *_groups(endpoint, scheduler_names)]
    return [
        _configuration("MutatingWebhookConfiguration", name, mutating),
        _configuration("ValidatingWebhookConfiguration", name, validating),
    ]


def probe_pod(namespace: str = "default") -> dict[str, Any]:
    """A pod that the webhook denies for its ``tflops-request``: created in a dry run, it shows
    whether the API server calls the webhook."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "dray-probe",
            "namespace": namespace,
            "annotations": {TFLOPS_REQUEST: INVALID_TFLOPS},
        },
        "spec": {"containers": [{"name": "probe", "image": "dray.dev/probe"}]},
    }


_DRA = CLAIMS.group
_CREATED_CLAIM = (_DRA, CLAIMS.plural, "CREATE")
_CREATED_TEMPLATE = (_DRA, TEMPLATES.plural, "CREATE")


class _Endpoint:
    """Makes webhook entries with the same URL, CA and timeout."""

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


def _mutating(
    endpoint: _Endpoint,
    not_trusted: str,
    scheduler_names: Sequence[str],
    gpu_resources: Sequence[str],
) -> list[dict[str, Any]]:
    """Injects claims into pods, and maps capacities of hand-written claims."""
    by_resource = _asks_by_resource(gpu_resources)
    pods = endpoint.webhook(
        "pods",
        MUTATE_PODS,
        _rule("", "pods", "CREATE"),
        {"concerned": _concerned(scheduler_names)},
    )
    others = endpoint.webhook(
        "pods-by-resource",
        MUTATE_PODS,
        _rule("", "pods", "CREATE"),
        {"not-concerned": f"!({_concerned(scheduler_names)})", "by-resource": by_resource},
        failure_policy="Ignore",
    )
    # For manifests that are applied again. ValidatingAdmissionPolicies (policies.yaml of the chart)
    # refuse what may not change.
    updates = endpoint.webhook(
        "pod-updates",
        MUTATE_PODS,
        _rule("", "pods", "UPDATE"),
        {
            "annotated": f"({_ANNOTATED}) || ({_annotated('oldObject')})",
            "changed": f"{_WRITTEN_CHANGED} || {by_resource}",
            "not-by-dray": not_trusted,
        },
        failure_policy="Ignore",
    )
    claims = endpoint.webhook(
        "claims", MUTATE_CLAIMS, _rule(*_CREATED_CLAIM), {"our-class": _OUR_CLAIM}
    )
    groups = endpoint.webhook(
        "queues-of-podgroups",
        MUTATE_GROUPS,
        _rule(POD_GROUPS.group, POD_GROUPS.plural, "CREATE", version=POD_GROUPS.version),
        {"volcano-is-absent": _volcano_is_absent(scheduler_names)},
        failure_policy="Ignore",
    )
    webhooks = (pods, others, updates, claims, groups)
    return [{**webhook, "reinvocationPolicy": "IfNeeded"} for webhook in webhooks]


def _validating(endpoint: _Endpoint) -> list[dict[str, Any]]:
    """Checks that run after all mutating webhooks."""
    tolerating_claim = {"strange": _FOREIGN_CLAIM, "tolerating": _TOLERATING_CLAIM}
    template = {"our-class": _OUR_TEMPLATE, "not-installed": _NOT_INSTALLED}
    tolerating_template = {"strange": f"!({_OUR_TEMPLATE})", "tolerating": _TOLERATING_TEMPLATE}
    refused = [
        endpoint.webhook(what, path, _rule(group, resource, operation), conditions)
        for what, path, group, resource, operation, conditions in (
            ("pods", VALIDATE_PODS, "", "pods", "CREATE", {"not-admitted": _NOT_ADMITTED}),
            ("claims", VALIDATE_CLAIMS, *_CREATED_CLAIM, {"drays": _DRAYS_CLAIM}),
            ("templates", VALIDATE_CLAIMS, *_CREATED_TEMPLATE, template),
            ("tolerating-claims", VALIDATE_CLAIMS, *_CREATED_CLAIM, tolerating_claim),
            ("tolerating-templates", VALIDATE_CLAIMS, *_CREATED_TEMPLATE, tolerating_template),
        )
    ]
    # Claims of other drivers do not wait for dray's webhook: it can refuse one only if the server
    # drops taints.
    others = {"strange": _FOREIGN_CLAIM, "not-tolerating": f"!({_TOLERATING_CLAIM})"}
    foreign = endpoint.webhook(
        "strange-claims",
        VALIDATE_CLAIMS,
        _rule(*_CREATED_CLAIM),
        others,
        failure_policy="Ignore",
    )
    pools = endpoint.webhook(
        "pools",
        VALIDATE_POOLS,
        _rule(POOLS.group, POOLS.plural, "CREATE", "UPDATE", scope="Cluster"),
        {"selector-changed": _SELECTOR_CHANGED},
        failure_policy="Ignore",
    )
    deletions = [
        endpoint.webhook(
            f"{what}-deletions",
            VALIDATE_POOLS,
            _rule(resource.group, resource.plural, "DELETE", scope="Cluster"),
            {},
            failure_policy="Ignore",
        )
        for what, resource in (("pools", POOLS), ("policies", POLICIES))
    ]
    workloads = endpoint.webhook(
        "workloads",
        VALIDATE_WORKLOADS,
        _rule("apps", "deployments", "CREATE", "UPDATE"),
        {
            "annotated": _WORKLOAD_WITH_ANNOTATIONS,
            "changed": _TEMPLATE_CHANGED,
            "not-owned": _NOT_OWNED,
        },
        failure_policy="Ignore",
    )
    rules = [
        _rule("apps", "deployments", "CREATE", "UPDATE"),
        _rule("apps", "statefulsets", "CREATE", "UPDATE"),
        _rule("apps", "daemonsets", "CREATE", "UPDATE"),
        _rule("batch", "jobs", "CREATE"),
        _rule("batch", "cronjobs", "CREATE", "UPDATE"),
    ]
    workloads |= {"rules": rules, "timeoutSeconds": _WARNING_TIMEOUT_S}
    return [*refused, foreign, workloads, pools, *deletions]


def _volcano_is_absent(scheduler_names: Sequence[str]) -> str:
    return f'"{VOLCANO_SCHEDULER}" in {_listed(scheduler_names)}'


def _groups(endpoint: _Endpoint, scheduler_names: Sequence[str]) -> list[dict[str, Any]]:
    """Volcano's rules. While the webhook is unavailable, only the status shows what is wrong."""
    kinds = (
        (POD_GROUPS, ("CREATE", "UPDATE"), "Namespaced"),
        (QUEUES, ("CREATE", "UPDATE", "DELETE"), "Cluster"),
    )
    return [
        endpoint.webhook(
            resource.plural,
            VALIDATE_GROUPS,
            _rule(
                resource.group,
                resource.plural,
                *operations,
                scope=scope,
                version=resource.version,
            ),
            {"volcano-is-absent": _volcano_is_absent(scheduler_names)},
            failure_policy="Ignore",
        )
        for resource, operations, scope in kinds
    ]


def _rule(
    group: str, resource: str, *operations: str, scope: str = "Namespaced", version: str = "v1"
) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": list(operations),
        "resources": [resource],
        "scope": scope,
    }


def _configuration(kind: str, name: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": _API,
        "kind": kind,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "dray"}},
        "webhooks": webhooks,
    }
