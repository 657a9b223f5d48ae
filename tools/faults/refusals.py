"""An admission webhook that is down for one namespace: the API server answers 500 to all of the
claim-controller's requests of one kind in it."""

from collections.abc import Mapping
from typing import Any, Final

from dray.kube.ports import Kube, Object, Resource
from dray_sandbox.access import CLAIM_CONTROLLER
from tools.simulation.answers import KUBE_ANSWERS, MARKER
from tools.simulation.refusals import KUBE_KINDS, TENANT, Case, LastingRefusal, refuse

WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
_NAME: Final = "odd"
_UNREACHABLE: Final = "https://127.0.0.1:1/"
"""A URL without a server."""


def _rule(group: str, version: str, operation: str, *resources: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": [operation],
        "resources": list(resources),
    }


_RULES: Final[Mapping[str, dict[str, Any]]] = {
    "patch a claim": _rule("resource.k8s.io", "v1", "UPDATE", "resourceclaims"),
    "patch a claim's status": _rule("resource.k8s.io", "v1", "UPDATE", "resourceclaims/status"),
    "patch a pod": _rule("", "v1", "UPDATE", "pods"),
    "bind a pod": _rule("", "v1", "CREATE", "pods/binding"),
    "create a template": _rule("resource.k8s.io", "v1", "CREATE", "resourceclaimtemplates"),
    "create a BindRequest": _rule("tensor-fusion.ai", "v1", "CREATE", "bindrequests"),
}


async def begin(kube: Kube, kind: str) -> None:
    """Let requests of a kind fail; for kinds see ``tools.simulation.refusals``."""
    await kube.create(WEBHOOKS, _configuration(kind))


async def end(kube: Kube) -> None:
    """Serve all requests again."""
    await kube.delete(WEBHOOKS, _NAME)


def refusal(kind: str) -> LastingRefusal:
    """The refusal for checks."""
    failed = next(answer for answer in KUBE_ANSWERS if answer.status == 500)
    return refuse(
        Case(next(one for one in KUBE_KINDS if one.name == kind), failed), namespace=TENANT
    )


def _configuration(kind: str) -> Object:
    webhook = {
        "name": MARKER,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 1,
        "clientConfig": {"url": _UNREACHABLE},
        "rules": [_RULES[kind]],
        "matchConditions": [
            {"name": "tenant", "expression": f'request.namespace == "{TENANT}"'},
            {
                "name": "by-dray",
                "expression": f'request.userInfo.username == "{CLAIM_CONTROLLER}"',
            },
        ],
    }
    return {"metadata": {"name": _NAME}, "webhooks": [webhook]}
