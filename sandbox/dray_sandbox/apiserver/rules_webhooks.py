"""Defaults and validation of mutating and validating webhook configurations."""

import base64
import binascii
from collections.abc import Sequence

from . import matchconditions
from .names import qualified_name
from .rules import ResourceRules
from .status import FieldError, Object, duplicate, invalid, not_supported, required, too_many

_MAX_CONDITIONS = 64
_POLICIES = ("Fail", "Ignore")


class WebhookRules(ResourceRules):
    """Mutating and validating webhook configurations."""

    def default(self, obj: Object) -> None:
        for webhook in obj.get("webhooks") or []:
            for key, value in (
                ("failurePolicy", "Fail"),
                ("matchPolicy", "Equivalent"),
                ("namespaceSelector", {}),
                ("objectSelector", {}),
                ("timeoutSeconds", 10),
            ):
                webhook.setdefault(key, value)
            if self.resource.kind == "MutatingWebhookConfiguration":
                webhook.setdefault("reinvocationPolicy", "Never")
            for rule in webhook.get("rules") or []:
                rule.setdefault("scope", "*")

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        found: list[FieldError] = []
        for index, webhook in enumerate(obj.get("webhooks") or []):
            found += _webhook(webhook, f"webhooks[{index}]")
        return found


def _webhook(webhook: Object, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    name = webhook.get("name", "")
    if name.count(".") < 2:
        text = "should be a domain with at least three segments separated by dots"
        found.append(invalid(f"{field}.name", name, text) if name else required(f"{field}.name"))
    policy = webhook["failurePolicy"]
    if policy not in _POLICIES:
        found.append(not_supported(f"{field}.failurePolicy", policy, _POLICIES))
    effects = webhook.get("sideEffects")
    if effects not in ("None", "NoneOnDryRun"):
        where, allowed = f"{field}.sideEffects", ("None", "NoneOnDryRun")
        found.append(required(where, "must specify one of None, NoneOnDryRun")
                     if effects is None else not_supported(where, effects, allowed))  # fmt: skip
    versions, where = (
        webhook.get("admissionReviewVersions") or [],
        f"{field}.admissionReviewVersions",
    )
    if not versions:
        found.append(required(where, "must specify one of v1, v1beta1"))
    elif "v1" not in versions:
        text = "must include at least one of v1, v1beta1"
        found.append(invalid(where, versions, text))
    found += _client(webhook.get("clientConfig") or {}, f"{field}.clientConfig")
    timeout_s = webhook["timeoutSeconds"]
    if not 1 <= timeout_s <= 30:
        text = "the timeout value must be between 1 and 30 seconds"
        found.append(invalid(f"{field}.timeoutSeconds", timeout_s, text))
    conditions = webhook.get("matchConditions") or []
    return [*found, *condition_errors(conditions, f"{field}.matchConditions")]


def condition_errors(conditions: Sequence[Object], field: str) -> list[FieldError]:
    """Findings about match conditions."""
    if len(conditions) > _MAX_CONDITIONS:
        return [too_many(field, len(conditions), _MAX_CONDITIONS)]
    found: list[FieldError] = []
    for number, condition in enumerate(conditions):
        found += _condition(condition, f"{field}[{number}]")
        if condition.get("name") in [earlier.get("name") for earlier in conditions[:number]]:
            found.append(duplicate(f"{field}[{number}].name", condition.get("name")))
    return found


def _condition(condition: Object, field: str) -> list[FieldError]:
    name, expression = condition.get("name", ""), condition.get("expression", "").strip()
    found: list[FieldError] = []
    if not expression:
        found.append(required(f"{field}.expression"))
    elif problem := matchconditions.check(expression):
        found.append(invalid(f"{field}.expression", condition["expression"], problem))
    if not name:
        return [*found, required(f"{field}.name")]
    return found + [invalid(f"{field}.name", name, text) for text in qualified_name(name)]


def _client(config: Object, field: str) -> list[FieldError]:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        return [required(field, "exactly one of url or service is required")]
    found: list[FieldError] = []
    if url is not None and not url.startswith("https://"):
        text = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
        found.append(invalid(f"{field}.url", url.split(":")[0], text))
    bundle = config.get("caBundle")
    if bundle:
        try:
            base64.b64decode(bundle, validate=True)
        except binascii.Error:
            found.append(invalid(f"{field}.caBundle", bundle, "illegal base64 data"))
    return found
