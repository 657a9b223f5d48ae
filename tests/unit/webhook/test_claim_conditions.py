"""For which claims the API server calls the webhook."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.api.names import DEVICE_CLASS
from dray_sandbox.apiserver import matchconditions

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "dray" / "files" / "webhooks.yaml"
TEMPLATES = "resourceclaimtemplates"
REQUEST = {"namespace": "team-a", "operation": "CREATE"}


def conditions(resource: str) -> Iterator[tuple[str, str]]:
    """The conditions of all webhooks for a resource, with their names."""
    for configuration in yaml.safe_load_all(CHART.read_text("utf-8")):
        for webhook in configuration["webhooks"]:
            if any(resource in rule["resources"] for rule in webhook["rules"]):
                for one in webhook.get("matchConditions", ()):
                    yield one["name"], one["expression"]


def holds(condition: str, resource: str, requests: Any) -> bool:
    spec: dict[str, Any] = {} if requests == "absent" else {"devices": {"requests": requests}}
    obj = {"metadata": {}, "spec": {"spec": spec} if resource == TEMPLATES else spec}
    return matchconditions.evaluate(condition, {"object": obj, "request": REQUEST})


@pytest.mark.parametrize("resource", ["resourceclaims", TEMPLATES])
@pytest.mark.parametrize("requests", ["absent", None, []])
def test_no_condition_fails_without_requests(resource: str, requests: Any) -> None:
    """An API server writes null for none; a condition that fails would refuse the claim."""
    found = {name: holds(text, resource, requests) for name, text in conditions(resource)}
    assert not found["our-class"]


@pytest.mark.parametrize("resource", ["resourceclaims", TEMPLATES])
def test_any_alternative_of_any_request_counts(resource: str) -> None:
    other = {"exactly": {"deviceClassName": "other"}}
    ours = {"firstAvailable": [{"deviceClassName": "other"}, {"deviceClassName": DEVICE_CLASS}]}
    of_class = dict(conditions(resource))["our-class"]
    assert not holds(of_class, resource, [other])
    assert holds(of_class, resource, [other, ours])
