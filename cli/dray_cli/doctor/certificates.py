"""Whether the certificates of webhook and NATS expire soon, if this user may read them."""

import base64
import datetime

from dray.kube.ports import Kube, NotFoundError, Object
from dray.runtime.certificates import CERTIFICATE_FILE, expires_at, still_valid
from dray_cli.doctor.findings import Finding, checked
from dray_cli.operator_secret import MUTATING_WEBHOOKS, installed_namespace, read_secret
from dray_webhook.decisions.registration import NAME as WEBHOOK

_AREA = "Certificates"
_SOON = datetime.timedelta(days=7)
"""The chart's jobs and cert-manager renew certificates long before this time is left."""
_SECRETS = {"of the webhook": "dray-webhook-tls", "of NATS": "dray-nats-tls"}


async def look_at_certificates(kube: Kube) -> list[Finding]:
    """Check the authorities by which the API server trusts the webhook, and an installation's
    Secrets; what does not exist is left out."""
    now = datetime.datetime.now(datetime.UTC)
    found = await checked(_AREA, "authorities of the webhook", _authorities(kube, now))
    for subject, name in _SECRETS.items():
        found += await checked(_AREA, subject, _of_secret(kube, subject, name, now))
    return found


async def _authorities(kube: Kube, now: datetime.datetime) -> list[Finding]:
    try:
        registered = await kube.get(MUTATING_WEBHOOKS, WEBHOOK)
    except NotFoundError:
        return []
    return [authorities_finding(registered, now)]


def authorities_finding(registered: Object, now: datetime.datetime) -> Finding:
    """The finding about the ``caBundle`` of a webhook configuration that expires first."""
    subject = "authorities of the webhook"
    bundles = [
        base64.b64decode(one["clientConfig"].get("caBundle") or "")
        for one in registered["webhooks"]
    ]
    if not all(bundles):
        text = f"MutatingWebhookConfiguration {WEBHOOK} lacks them: no pod with GPUs is admitted"
        return Finding(_AREA, subject, "broken", text)
    ends = [expires_at(valid) for bundle in bundles if (valid := still_valid(bundle, at=now))]
    if len(ends) < len(bundles):
        text = "expired or not readable: no pod with GPUs is admitted; is the renewal running?"
        return Finding(_AREA, subject, "broken", text)
    return expiry_finding(subject, min(ends), now)


async def _of_secret(kube: Kube, subject: str, name: str, now: datetime.datetime) -> list[Finding]:
    data = await read_secret(kube, await installed_namespace(kube), name)
    if not (certificate := data.get(CERTIFICATE_FILE)):
        return []
    return [expiry_finding(subject, expires_at(certificate.encode()), now)]


def expiry_finding(subject: str, end: datetime.datetime, now: datetime.datetime) -> Finding:
    """How long a certificate lasts."""
    if end <= now:
        return Finding(_AREA, subject, "broken", f"expired on {end:%Y-%m-%d}; renew it")
    text = f"valid until {end:%Y-%m-%d}"
    if end - now < _SOON:
        return Finding(_AREA, subject, "lesser", f"{text} only: is the renewal running?")
    return Finding(_AREA, subject, "ok", text)
