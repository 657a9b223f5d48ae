"""What is wrong with a device class or a claim template is refused by name."""

from typing import Any

import pytest

OPAQUE = {"driver": "example.com", "parameters": {"a": 1}}


def many(count: int, item: Any) -> list[Any]:
    return [item] * count


SELECTOR = {"cel": {"expression": "true"}}
CONFIG = {"opaque": OPAQUE}
NAME = "spec.extendedResourceName"
CLASSES: dict[str, tuple[Any, list[str]]] = {
    "33 selectors": (
        {"selectors": many(33, SELECTOR)},
        ["spec.selectors: Too many: 33: must have at most 32 items"],
    ),
    "33 configs": (
        {"config": many(33, CONFIG)},
        ["spec.config: Too many: 33: must have at most 32 items"],
    ),
    "a selector that does not compile": (
        {"selectors": [{"cel": {"expression": "nonsense"}}]},
        ['spec.selectors[0].cel.expression: Invalid value: "nonsense": compilation failed: E'],
    ),
    "a selector without cel": ({"selectors": [{}]}, ["spec.selectors[0].cel: Required value"]),
    "a config without opaque": ({"config": [{}]}, ["spec.config[0].opaque: Required value"]),
    "a config without driver": (
        {"config": [{"opaque": {"parameters": {}}}]},
        ["spec.config[0].opaque.driver: Required value"],
    ),
    "an extended resource without domain": (
        {"extendedResourceName": "gpu"},
        [f'{NAME}: Invalid value: "gpu": must be a valid extended resource name'],
    ),
    "an extended resource of Kubernetes": (
        {"extendedResourceName": "kubernetes.io/gpu"},
        [f'{NAME}: Invalid value: "kubernetes.io/gpu": must be a valid extended resource name'],
    ),
    "an extended resource of quota": (
        {"extendedResourceName": "requests.example.com/gpu"},
        [f'{NAME}: Invalid value: "requests.example.com/gpu": must be a valid extended resour'],
    ),
    "an extended resource that is not a name": (
        {"extendedResourceName": "example.com/-"},
        [f'{NAME}: Invalid value: "example.com/-": must be a valid extended resource name'],
    ),
    "an empty extended resource": (
        {"extendedResourceName": ""},
        [f'{NAME}: Invalid value: "": must be a valid extended resource name'],
    ),
}
TEMPLATES: dict[str, tuple[Any, list[str]]] = {
    "an invalid label": (
        {"metadata": {"labels": {"-": "a"}}},
        ['spec.metadata.labels: Invalid value: "-": name part'],
    ),
    "an invalid label value": (
        {"metadata": {"labels": {"a": "-"}}},
        ['spec.metadata.labels: Invalid value: "-": a valid label must be an empty string or'],
    ),
    "an invalid annotation": (
        {"metadata": {"annotations": {"-": "a"}}},
        ['spec.metadata.annotations: Invalid value: "-": name part'],
    ),
    "a claim without class": (
        {"spec": {"devices": {"requests": [{"name": "a", "exactly": {}}]}}},
        ["spec.spec.devices.requests[0].exactly.deviceClassName: Required value"],
    ),
    "a constraint without attribute": (
        {"spec": {"devices": {"constraints": [{}]}}},
        ['spec.spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" '],
    ),
    "a config without opaque": (
        {"spec": {"devices": {"config": [{}]}}},
        ["spec.spec.devices.config[0].opaque: Required value"],
    ),
}
IN_OTHER_MINORS: dict[int, dict[str, list[str]]] = {
    34: {
        "a config without driver": [
            "spec.config[0].opaque.driver: Required value",
            "spec.config[0].opaque.driver: Invalid value",
        ],
        "a constraint without attribute": [
            "spec.spec.devices.constraints[0].matchAttribute: Required value"
        ],
    },
    35: {
        "a constraint without attribute": [
            "spec.spec.devices.constraints[0].matchAttribute: Required value"
        ],
    },
    37: {"an empty extended resource": [f"{NAME}: Invalid value", f"{NAME}: Invalid value"]},
}
"""Of other minors than the sandbox's: other fields and types."""


@pytest.mark.parametrize("what", CLASSES)
async def test_a_wrong_class_is_refused(api: Any, invalid: Any, what: str) -> None:
    spec, expected = CLASSES[what]
    api.needs_kept(spec)
    body = {"metadata": {"name": api.unique("class")}, "spec": spec}

    with invalid(expected, IN_OTHER_MINORS, what):
        await api.create("deviceclasses", body)


async def test_a_class_at_its_limits_is_taken(api: Any) -> None:
    spec = {
        "selectors": many(32, SELECTOR),
        "config": many(32, CONFIG),
        "extendedResourceName": "example.com/gpu",
    }

    await api.create("deviceclasses", {"metadata": {"name": api.unique("class")}, "spec": spec})


@pytest.mark.parametrize("what", TEMPLATES)
async def test_a_wrong_template_is_refused(api: Any, invalid: Any, what: str) -> None:
    spec, expected = TEMPLATES[what]

    with invalid(expected, IN_OTHER_MINORS, what):
        await api.create("resourceclaimtemplates", {"metadata": {"name": "bad"}, "spec": spec})
