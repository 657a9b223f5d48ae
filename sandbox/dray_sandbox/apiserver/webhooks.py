"""Calls admission webhooks over verified TLS: sends an AdmissionReview, reads the answer."""

import base64
import binascii
import ssl
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

from dray.api import json_codec

from .status import ApiError, Object

_ANYTHING = msgspec.json.Decoder[Any]()


@dataclass(frozen=True)
class WebhookVerdict:
    """A webhook's answer."""

    allowed: bool
    patch: list[Object] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    status: Object = field(default_factory=dict)


class CallFailed(Exception):
    """No usable answer: unreachable, too slow, not TLS as promised, not an AdmissionReview."""


class WebhookClient:
    """One HTTP session for all webhooks; TLS contexts are kept per CA bundle."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def close(self) -> None:
        """Close open connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, webhook: Object, request: Object) -> WebhookVerdict:
        """Send one AdmissionRequest; `CallFailed` when there is no usable answer."""
        config = webhook["clientConfig"]
        url = config.get("url")
        if not url:
            raise CallFailed("the sandbox has no Services to route to; use clientConfig.url")
        if self._session is None:
            self._session = aiohttp.ClientSession()
        timeout_s = webhook.get("timeoutSeconds", 10)
        review = {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": request,
        }
        try:
            async with self._session.post(
                url,
                params={"timeout": f"{timeout_s}s"},
                data=msgspec.json.encode(review),
                headers={"Content-Type": "application/json"},
                ssl=self._context(config.get("caBundle", "")),
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as response:
                body = await response.read()
                if response.status != 200:
                    text = body.decode(errors="replace").strip()
                    raise CallFailed(f"the server answered {response.status}: {text}")
        except TimeoutError as error:
            raise CallFailed(
                f'Post "{url}?timeout={timeout_s}s": context deadline exceeded'
            ) from error
        except (aiohttp.ClientError, ssl.SSLError) as error:
            raise CallFailed(f'Post "{url}?timeout={timeout_s}s": {error}') from error
        return _verdict(body, request["uid"])

    def _context(self, bundle: str) -> ssl.SSLContext:
        if bundle not in self._contexts:
            context = ssl.create_default_context()
            if bundle:
                context = ssl.create_default_context(cadata=_pem(bundle))
            self._contexts[bundle] = context
        return self._contexts[bundle]


def _pem(bundle: str) -> str:
    try:
        return base64.b64decode(bundle, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise CallFailed(f"caBundle is not base64 of PEM: {error}") from error


def _verdict(body: bytes, uid: str) -> WebhookVerdict:
    try:
        review = json_codec.decode(body, _ANYTHING)
        response: dict[str, Any] = review["response"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise CallFailed(f"the answer is not an AdmissionReview: {error!r}") from error
    if response.get("uid") != uid:
        raise CallFailed(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    patch: list[Object] = []
    if response.get("patch"):
        if response.get("patchType") != "JSONPatch":
            raise CallFailed(f"unsupported patch type {response.get('patchType')!r}")
        patch = json_codec.decode(base64.b64decode(response["patch"]), _ANYTHING)
    warnings = list(response.get("warnings") or [])
    status = response.get("status") or {}
    return WebhookVerdict(bool(response.get("allowed")), patch, warnings, status)


def denial(name: str, status: Object) -> ApiError:
    """The error of a denied request (`ToStatusErr` of the real server)."""
    text = f'admission webhook "{name}" denied the request'
    if status.get("message"):
        text += f": {status['message']}"
    elif status.get("reason"):
        text += f": {status['reason']}"
    else:
        text += " without explanation"
    code = max(status.get("code") or 0, 400)
    return ApiError(code, status.get("reason") or "", text, status.get("details"))
