"""From a connection's token to the rights of a node's user. Pure."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dray.api.errors import PermanentError
from dray.bus.topology import (
    API_OF_OTHERS,
    NODE_AGENT,
    NODE_INBOX,
    access_of,
    account_of,
    api_rights,
)
from dray.kube.ports import Object
from dray.messages.base import token

_NODE_NAME: Final = "authentication.kubernetes.io/node-name"
"""In a review's ``extra``: the node to which the token, or its pod, is bound."""
_NODE: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
"""A DNS subdomain: in a subject it matches only itself."""
_MOST_SUBSCRIPTIONS: Final = 64


class IdentityRefusedError(PermanentError):
    """The connection gets no user."""


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that asks for a user."""

    user_key: str
    """The public key that the server chose for it."""
    server: str
    """The server's id: the audience of the answer."""
    token: str


def asking_of(payload: bytes) -> Asking:
    """What the server's request says. Raises IdentityRefusedError."""
    try:
        claims = _claims_of(payload.decode())
        asked = claims["nats"]
        options = asked.get("connect_opts") or {}
        return Asking(
            user_key=str(asked["user_nkey"]),
            server=str(asked["server_id"]["id"]),
            token=str(options.get("auth_token") or ""),
        )
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise IdentityRefusedError(f"the server's request can't be read: {error!r}") from error


def token_review(asking: Asking, audience: str) -> Object:
    """The review to ask Kubernetes for. Raises IdentityRefusedError if there is no token."""
    if not asking.token:
        raise IdentityRefusedError(
            "the connection has no token: a node-agent connects with the token of its service "
            "account, and the other services with a user of nats-server's configuration"
        )
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "metadata": {},
        "spec": {"token": asking.token, "audiences": [audience]},
    }


def node_of(review: Object, *, user: str, audience: str) -> str:
    """The node that Kubernetes vouches for. Raises IdentityRefusedError."""
    status = review.get("status") or {}
    if not status.get("authenticated"):
        why = status.get("error") or "the token is not valid"
        raise IdentityRefusedError(f"Kubernetes does not confirm the token: {why}")
    if audience not in (status.get("audiences") or ()):
        raise IdentityRefusedError(
            f"the token is for {', '.join(status.get('audiences') or ('nobody',))}, "
            f"and not for {audience}: set it as the audience of the projected token"
        )
    seen = status.get("user") or {}
    if seen.get("username") != user:
        raise IdentityRefusedError(
            f"the token belongs to {seen.get('username')!r}; only {user!r} connects as a node-agent"
        )
    names: list[Any] = list((seen.get("extra") or {}).get(_NODE_NAME) or ())
    if len(names) != 1 or not names[0]:
        raise IdentityRefusedError(
            f"the token of {user} is bound to no node ({_NODE_NAME} is {names}): it has to be "
            "a pod's, projected by the kubelet, or requested for a Node"
        )
    if _NODE.fullmatch(str(names[0])) is None:
        raise IdentityRefusedError(f"{names[0]!r} is not the name of a Node")
    return str(names[0])


def user_claims(
    asking: Asking, node: str, *, now_unix_s: float, lifetime_s: float
) -> dict[str, Any]:
    """The claims of the user that the connection gets: it has the rights of one node until they
    expire, and never longer than the token is valid. Raises IdentityRefusedError if the token does
    not say how long it is valid."""
    rights = access_of(NODE_AGENT).for_node(node)
    expires_unix_s = min(now_unix_s + lifetime_s, _expiry_of(asking.token))
    return {
        "sub": asking.user_key,
        "aud": account_of(NODE_AGENT),
        "name": node,
        "iat": int(now_unix_s),
        "exp": int(expires_unix_s),
        "nats": {
            "type": "user",
            "version": 2,
            "pub": {
                "allow": [*rights.publish, *(API_OF_OTHERS + each for each in api_rights(rights))]
            },
            "sub": {"allow": [f"{NODE_INBOX}.{token(node)}.>"]},
            "subs": _MOST_SUBSCRIPTIONS,
            "data": -1,
            "payload": -1,
            "allowed_connection_types": ["STANDARD"],
        },
    }


def response_claims(
    asking: Asking, *, now_unix_s: float, user: str = "", error: str = ""
) -> dict[str, Any]:
    """The answer to the server: the signed user, or why there is none."""
    answer = {"jwt": user} if user else {"error": error}
    return {
        "sub": asking.user_key,
        "aud": asking.server,
        "iat": int(now_unix_s),
        "nats": {**answer, "type": "authorization_response", "version": 2},
    }


def _expiry_of(text: str) -> float:
    """When a token that Kubernetes has confirmed ends."""
    try:
        return float(_claims_of(text)["exp"])
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError) as error:
        raise IdentityRefusedError("the token does not say when it ends") from error


def _claims_of(text: str) -> Mapping[str, Any]:
    """The claims of a JWT, unverified. Raises ValueError, MsgspecError."""
    parts = text.split(".")
    if len(parts) != 3:
        raise ValueError("it is not a JWT")
    try:
        body = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    return msgspec.json.decode(body, type=dict[str, Any])
