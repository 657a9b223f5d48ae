"""The Secret of an installation from which people's command line gets the bus' address and users.

Who may read it and open a port-forward to NATS may read the bus, by plain RBAC. The chart's jobs
write it.
"""

import base64
from collections.abc import Mapping
from typing import Final

from dray.kube.ports import Kube, NotFoundError, Resource

SECRETS: Final = Resource("", "v1", "secrets", "Secret")
OPERATOR: Final = "dray-operator"
URL, AUTHORITIES = "url", "ca.crt"
"""Keys: of the bus, and of the authorities of its certificate (PEM; empty: no TLS)."""


def password_key(user: str) -> str:
    """The key of a user's password."""
    return f"{user}-password"


async def read_secret(kube: Kube, namespace: str, name: str) -> dict[str, str]:
    """The data of a Secret; empty if there is none."""
    try:
        found = await kube.get(SECRETS, name, namespace)
    except NotFoundError:
        return {}
    data: Mapping[str, str] = found.get("data") or {}
    return {key: base64.b64decode(text).decode() for key, text in data.items()}
