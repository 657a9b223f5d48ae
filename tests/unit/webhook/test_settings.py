"""Settings of the webhook, as people write them."""

import pytest

from dray.runtime.settings import load
from dray_webhook.settings import WebhookSettings


def test_defaults_name_the_local_and_the_installed_claim_controller():
    settings = load(WebhookSettings)

    assert settings.service_users() == (
        "system:serviceaccount:dray-system:dray-claim-controller",
        "dray-claim-controller",
    )
    assert settings.webhook.sans == ()
    assert settings.webhook.lookup_timeout == 0.3


def test_everything_is_set_by_the_environment(monkeypatch):
    for name, text in {
        "DRAY_NAMESPACE": "gpu",
        "DRAY_WEBHOOK__SANS": "dray-webhook.gpu.svc, localhost",
        "DRAY_WEBHOOK__LOOKUP_TIMEOUT": "150ms",
        "DRAY_WEBHOOK__SAMPLING_RATIO": "0.01",
        "DRAY_WEBHOOK__BODY_LIMIT": "4MiB",
        "DRAY_WEBHOOK__SERVICE_USERS": "a,b",
    }.items():
        monkeypatch.setenv(name, text)

    settings = load(WebhookSettings)

    assert settings.webhook.sans == ("dray-webhook.gpu.svc", "localhost")
    assert settings.webhook.lookup_timeout == 0.15
    assert settings.webhook.body_limit == 4 * 2**20
    assert settings.service_users() == (
        "system:serviceaccount:gpu:dray-claim-controller",
        "a",
        "b",
    )


def test_every_wrong_setting_is_named(monkeypatch, capsys):
    monkeypatch.setenv("DRAY_WEBHOOK__LOOKUP_TIMEOUT", "300")
    monkeypatch.setenv("DRAY_WEBHOOK__SAMPLING_RATIO", "2")
    monkeypatch.setenv("DRAY_WEBHOOK__PORT", "https")

    with pytest.raises(SystemExit) as ended:
        load(WebhookSettings)

    output = capsys.readouterr().err
    assert ended.value.code == 2
    for name in ("LOOKUP_TIMEOUT", "SAMPLING_RATIO", "PORT"):
        assert f"DRAY_WEBHOOK__{name} is " in output
