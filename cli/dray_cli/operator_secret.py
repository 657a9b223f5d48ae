"""The installation's Secret from which the command line gets the bus's address and users.

The chart's jobs write it. RBAC decides who may read the bus: a user needs the rights to read this
Secret and to open a port-forward to NATS.
"""

import base64
import os
from collections.abc import Mapping
from typing import Final

from dray.api.names import DRAY_NAMESPACE
from dray.kube.ports import Kube, NotFoundError, RefusedError, Resource
from dray_webhook.decisions.registration import NAME as WEBHOOK

SECRETS: Final = Resource("", "v1", "secrets", "Secret")
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
OPERATOR: Final = "dray-operator"
NAMESPACE_VARIABLE: Final = "DRAY_NAMESPACE"
URL, AUTHORITIES = "url", "ca.crt"
"""Keys of the bus's URL and of the authorities of its certificate (PEM; empty: no TLS)."""


def password_key(user: str) -> str:
    """The key of a user's password."""
    return f"{user}-password"


async def installed_namespace(kube: Kube) -> str:
    """dray's namespace: ``$DRAY_NAMESPACE``, else that of the registered webhook's Service, else
    the usual one."""
    if named := os.environ.get(NAMESPACE_VARIABLE):
        return named
    try:
        found = await kube.get(MUTATING_WEBHOOKS, WEBHOOK)
    except (NotFoundError, RefusedError):
        return DRAY_NAMESPACE
    service = found["webhooks"][0]["clientConfig"].get("service") or {}
    return str(service.get("namespace") or DRAY_NAMESPACE)


async def read_secret(kube: Kube, namespace: str, name: str) -> dict[str, str]:
    """The data of a Secret; empty if there is none."""
    try:
        found = await kube.get(SECRETS, name, namespace)
    except NotFoundError:
        return {}
    data: Mapping[str, str] = found.get("data") or {}
    return {key: base64.b64decode(text).decode() for key, text in data.items()}
