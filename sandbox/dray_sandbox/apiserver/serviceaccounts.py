"""Tokens of service accounts: requests for a Node, and reviews.

Only what a kubelet needs for a projected token that is bound to a Node and not to a pod. Kubernetes
has such tokens since 1.33.
"""

import base64
import binascii
import datetime
import hashlib
import hmac
import secrets
import time
from pathlib import Path
from typing import Any

import msgspec

from . import metadata, status
from .operations import key_of
from .resources import Registry
from .status import ApiError, Object
from .store import Store

_ISSUER = "https://kubernetes.default.svc"
_SHORTEST_S = 600
_DEFAULT_S = 3600
_KEY_FILE = "service-accounts.key"
_HEADER = {"alg": "HS256", "typ": "JWT"}
_EXTRA = "authentication.kubernetes.io/"


def signing_key(data_dir: Path | None) -> bytes:
    """The key that signs tokens. It is kept if the server's objects are kept."""
    if data_dir is None:
        return secrets.token_bytes(32)
    path = data_dir / _KEY_FILE
    if not path.is_file():
        data_dir.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(secrets.token_bytes(32))
    return path.read_bytes()


class ServiceAccountTokens:
    """Issues and reviews tokens."""

    def __init__(self, store: Store, registry: Registry, key: bytes) -> None:
        self._store = store
        self._registry = registry
        self._key = key

    def request(self, namespace: str, name: str, body: Any) -> Object:
        """The answer to a TokenRequest."""
        account = self._existing("ServiceAccount", namespace, name)
        spec = (body or {}).get("spec") or {}
        lasts_s = int(spec.get("expirationSeconds") or _DEFAULT_S)
        if lasts_s < _SHORTEST_S:
            text = "may not specify a duration less than 10 minutes"
            found = [status.invalid("spec.expirationSeconds", lasts_s, text)]
            raise status.invalid_object("TokenRequest", "authentication.k8s.io", "", found)
        audiences = list(spec.get("audiences") or [_ISSUER])
        kubernetes: Object = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": account["metadata"]["uid"]},
        }
        if (bound := spec.get("boundObjectRef")) is not None:
            kubernetes["node"] = self._node(bound)
        now_unix_s = int(time.time())
        claims = {
            "aud": audiences,
            "exp": now_unix_s + lasts_s,
            "iat": now_unix_s,
            "iss": _ISSUER,
            "jti": secrets.token_hex(16),
            "kubernetes.io": kubernetes,
            "nbf": now_unix_s,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        expires = _moment(now_unix_s + lasts_s)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": metadata.now()},
            "spec": {**spec, "audiences": audiences, "expirationSeconds": lasts_s},
            "status": {"token": self._signed(claims), "expirationTimestamp": expires},
        }

    def review(self, spec: Object) -> Object:
        """The status of a TokenReview."""
        claims = self._verified(str(spec.get("token") or ""))
        if claims is None:
            return {"user": {}, "error": "[invalid bearer token, unknown]"}
        wanted = list(spec.get("audiences") or [_ISSUER])
        shared = [one for one in wanted if one in claims["aud"]]
        if not shared:
            error = f"token audiences {claims['aud']} is invalid for the target audiences {wanted}"
            return {"user": {}, "error": f"[invalid bearer token, {error}]"}
        kubernetes = claims["kubernetes.io"]
        if why := self._gone(kubernetes):
            return {"user": {}, "error": f"[invalid bearer token, {why}]"}
        namespace = kubernetes["namespace"]
        extra = {f"{_EXTRA}credential-id": [f"JTI={claims['jti']}"]}
        if node := kubernetes.get("node"):
            extra |= {f"{_EXTRA}node-name": [node["name"]], f"{_EXTRA}node-uid": [node["uid"]]}
        user = {
            "username": claims["sub"],
            "uid": kubernetes["serviceaccount"]["uid"],
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{namespace}",
                "system:authenticated",
            ],
            "extra": extra,
        }
        return {"authenticated": True, "user": user, "audiences": shared}

    def _node(self, bound: Object) -> Object:
        if bound.get("kind") != "Node":
            raise status.bad_request(f"cannot bind token for object of type {bound.get('kind')}")
        node = self._existing("Node", "", str(bound.get("name")))
        uid = node["metadata"]["uid"]
        if bound.get("uid") not in (None, "", uid):
            text = (
                f"the UID in the bound object reference ({bound['uid']}) does not match the UID "
                f"in record. The object might have been deleted and then recreated"
            )
            raise ApiError(409, "Conflict", text)
        return {"name": bound["name"], "uid": uid}

    def _gone(self, kubernetes: Object) -> str:
        """Which object that a token names has been deleted or replaced; empty: none."""
        account = kubernetes["serviceaccount"]
        named = [("ServiceAccount", kubernetes["namespace"], account)]
        if node := kubernetes.get("node"):
            named.append(("Node", "", node))
        for kind, namespace, one in named:
            resource = self._registry.by_kind("v1", kind)
            assert resource is not None
            found = self._store.get(key_of(resource, namespace, one["name"]))
            if found is None or found["metadata"]["uid"] != one["uid"]:
                return f"{kind} {one['name']} has been deleted or is another"
        return ""

    def _existing(self, kind: str, namespace: str, name: str) -> Object:
        resource = self._registry.by_kind("v1", kind)
        assert resource is not None
        found = self._store.get(key_of(resource, namespace, name))
        if found is None:
            raise status.not_found(resource.plural, resource.group, name)
        return found

    def _signed(self, claims: Object) -> str:
        text = f"{_part(msgspec.json.encode(_HEADER))}.{_part(msgspec.json.encode(claims))}"
        return f"{text}.{_part(self._mac(text))}"

    def _verified(self, token: str) -> Object | None:
        text, _, mac = token.rpartition(".")
        if not hmac.compare_digest(mac.encode(), _part(self._mac(text)).encode()):
            return None
        body = text.partition(".")[2]
        try:
            claims: Object = msgspec.json.decode(
                base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
            )
        except (binascii.Error, msgspec.DecodeError):
            return None
        return claims if claims["exp"] > time.time() else None

    def _mac(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode(), hashlib.sha256)


def _moment(unix_s: float) -> str:
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
