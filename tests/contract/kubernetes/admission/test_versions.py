"""Webhooks and the versions of one object: what a rule names, it gets."""

from typing import Any

import pytest

BETA = "resource.k8s.io/v1beta2"
MUTATING = "mutatingwebhookconfigurations"


@pytest.fixture(scope="module")
def target(target_with_v1beta2: Any) -> Any:
    return target_with_v1beta2


def of_claims(api: Any, hook: Any, version: str, **more: Any) -> dict[str, Any]:
    rule = {
        "operations": ["CREATE"],
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": [version],
        "resources": ["resourceclaims"],
    }
    return dict(hook.configuration(api, rules=[rule], **more))


async def asked(api: Any, hook: Any, plural: str) -> None:
    """Wait until the webhook is asked about claims made as `plural`."""
    body = api.claim("probe")
    body["apiVersion"] = BETA if plural.startswith(BETA) else "resource.k8s.io/v1"

    async def followed() -> bool:
        await api.create(plural, body, dryRun="All")
        return bool(hook.requests)

    await api.until(followed)
    hook.requests.clear()


async def test_a_webhook_for_v1_is_asked_about_v1beta2_in_v1(api: Any, hook: Any) -> None:
    await api.create(MUTATING, of_claims(api, hook, "v1"))
    await asked(api, hook, f"{BETA}/resourceclaims")
    hook.patch = [{"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}]

    made = await api.create(f"{BETA}/resourceclaims", {**api.claim("one"), "apiVersion": BETA})

    request = hook.requests[-1]
    assert request["kind"]["version"] == request["resource"]["version"] == "v1"
    assert request["requestKind"]["version"] == request["requestResource"]["version"] == "v1beta2"
    assert request["object"]["apiVersion"] == "resource.k8s.io/v1"
    assert (made["apiVersion"], made["metadata"]["labels"]) == (BETA, {"by": "hook"})


async def test_a_webhook_for_v1beta2_is_asked_about_v1_in_v1beta2(api: Any, hook: Any) -> None:
    await api.create(MUTATING, of_claims(api, hook, "v1beta2"))
    await asked(api, hook, "resourceclaims")

    await api.create("resourceclaims", api.claim("one"))

    request = hook.requests[-1]
    assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v1beta2", "v1")
    assert request["object"]["apiVersion"] == BETA


async def test_an_exact_webhook_is_asked_about_its_version_only(api: Any, hook: Any) -> None:
    await api.create(MUTATING, of_claims(api, hook, "v1", matchPolicy="Exact"))
    await asked(api, hook, "resourceclaims")

    await api.create(f"{BETA}/resourceclaims", {**api.claim("one"), "apiVersion": BETA})

    assert hook.requests == []
