"""The limits of ResourceClaims: what is at one is taken, what is beyond it refused."""

from typing import Any

import pytest


def request(name: str = "a", **exactly: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "x", **exactly}}


def devices(*requests: Any, **more: Any) -> dict[str, Any]:
    return {"devices": {"requests": list(requests) or [request()], **more}}


def requests(count: int) -> dict[str, Any]:
    return devices(*(request(f"a{i}") for i in range(count)))


def alternatives(count: int) -> dict[str, Any]:
    options = [{"name": f"o{i}", "deviceClassName": "x"} for i in range(count)]
    return devices({"name": "a", "firstAvailable": options})


def selectors(count: int) -> dict[str, Any]:
    return devices(request(selectors=[{"cel": {"expression": "true"}}] * count))


def selectors_of_an_alternative(count: int) -> dict[str, Any]:
    option = {"deviceClassName": "x", "selectors": [{"cel": {"expression": "true"}}] * count}
    return devices({"name": "a", "firstAvailable": [{"name": "o", **option}]})


def expression(size_bytes: int) -> dict[str, Any]:
    text = "true" + " " * (size_bytes - 4)
    return devices(request(selectors=[{"cel": {"expression": text}}]))


def comparisons(count: int) -> dict[str, Any]:
    """Each walks all attributes of all domains, twice nested: the estimate assumes 32 of each."""
    of_domain = "device.attributes[d].all(k, device.attributes[d].all(j, k == j))"
    text = " || ".join([f"device.attributes.all(d, {of_domain})"] * count)
    return devices(request(selectors=[{"cel": {"expression": text}}]))


def constraints(count: int) -> dict[str, Any]:
    return devices(constraints=[{"matchAttribute": "example.com/x"}] * count)


def named(count: int) -> tuple[list[Any], list[str]]:
    """32 requests, and as many names of them: one request has an alternative to name."""
    option = {"name": "o", "deviceClassName": "x"}
    many = [{"name": "a", "firstAvailable": [option]}, *requests(31)["devices"]["requests"]]
    return many, ["a/o", *(item["name"] for item in many)][:count]


def requests_of_a_constraint(count: int) -> dict[str, Any]:
    many, names = named(count)
    return devices(*many, constraints=[{"requests": names, "matchAttribute": "example.com/x"}])


def configs(count: int) -> dict[str, Any]:
    opaque = {"driver": "example.com", "parameters": {"a": 1}}
    return devices(config=[{"opaque": opaque}] * count)


def requests_of_a_config(count: int) -> dict[str, Any]:
    many, names = named(count)
    opaque = {"driver": "example.com", "parameters": {"a": 1}}
    return devices(*many, config=[{"requests": names, "opaque": opaque}])


def parameters(size_bytes: int) -> dict[str, Any]:
    opaque = {"driver": "example.com", "parameters": {"a": "x" * (size_bytes - 8)}}
    return devices(config=[{"opaque": opaque}])


def driver(size_bytes: int) -> dict[str, Any]:
    opaque = {"driver": "d" * size_bytes, "parameters": {"a": 1}}
    return devices(config=[{"opaque": opaque}])


def attribute_domain(size_bytes: int) -> dict[str, Any]:
    return devices(constraints=[{"matchAttribute": f"{'d' * size_bytes}/x"}])


def attribute_identifier(size_bytes: int) -> dict[str, Any]:
    return devices(constraints=[{"distinctAttribute": f"example.com/{'i' * size_bytes}"}])


def request_name(size_bytes: int) -> dict[str, Any]:
    return devices(request("a" * size_bytes))


def class_name(size_bytes: int) -> dict[str, Any]:
    return devices(request(deviceClassName="c" * size_bytes))


R = "spec.devices.requests"
LIMITS: dict[str, tuple[Any, int, str, str]] = {
    "32 requests": (requests, 32, R, "Too many: 33: must have at most 32 items"),
    "8 alternatives of a request": (
        alternatives,
        8,
        f"{R}[0].firstAvailable",
        "Too many: 9: must have at most 8 items",
    ),
    "32 selectors of a request": (
        selectors,
        32,
        f"{R}[0].exactly.selectors",
        "Too many: 33: must have at most 32 items",
    ),
    "32 selectors of an alternative": (
        selectors_of_an_alternative,
        32,
        f"{R}[0].firstAvailable[0].selectors",
        "Too many: 33: must have at most 32 items",
    ),
    "10 KiB of an expression": (
        expression,
        10240,
        f"{R}[0].exactly.selectors[0].cel.expression",
        "Too long: may not be more than 10240 bytes",
    ),
    "32 constraints": (
        constraints,
        32,
        "spec.devices.constraints",
        "Too many: 33: must have at most 32 items",
    ),
    "32 requests of a constraint": (
        requests_of_a_constraint,
        32,
        "spec.devices.constraints[0].requests",
        "Too many: 33: must have at most 32 items",
    ),
    "32 configs": (
        configs,
        32,
        "spec.devices.config",
        "Too many: 33: must have at most 32 items",
    ),
    "32 requests of a config": (
        requests_of_a_config,
        32,
        "spec.devices.config[0].requests",
        "Too many: 33: must have at most 32 items",
    ),
    "10 KiB of opaque parameters": (
        parameters,
        10240,
        "spec.devices.config[0].opaque.parameters",
        "Too long: may not be more than 10240 bytes",
    ),
    "63 bytes of a driver's name": (
        driver,
        63,
        "spec.devices.config[0].opaque.driver",
        "Too long: may not be more than 63 bytes",
    ),
    "63 bytes of an attribute's domain": (
        attribute_domain,
        63,
        "spec.devices.constraints[0].matchAttribute",
        "Too long: may not be more than 63 bytes",
    ),
    "32 bytes of an attribute's name": (
        attribute_identifier,
        32,
        "spec.devices.constraints[0].distinctAttribute",
        "Too long: may not be more than 32 bytes",
    ),
    "63 bytes of a request's name": (
        request_name,
        63,
        f"{R}[0].name",
        f'Invalid value: "{"a" * 64}": must be no more than 63 characters',
    ),
    "253 bytes of a class's name": (
        class_name,
        253,
        f"{R}[0].exactly.deviceClassName",
        f'Invalid value: "{"c" * 254}": must be no more than 253 characters',
    ),
    "a million of an expression's cost": (
        comparisons,
        3,
        f"{R}[0].exactly.selectors[0].cel.expression",
        "Forbidden: too complex, exceeds cost limit",
    ),
}


@pytest.mark.parametrize("limit", LIMITS)
async def test_at_a_limit_a_claim_is_taken(api: Any, limit: str) -> None:
    build, most, _, _ = LIMITS[limit]
    api.needs_kept(build(most))

    await api.create("resourceclaims", {"metadata": {"name": "at"}, "spec": build(most)})


@pytest.mark.parametrize("limit", LIMITS)
async def test_beyond_a_limit_a_claim_is_refused(api: Any, invalid: Any, limit: str) -> None:
    build, most, field, text = LIMITS[limit]
    api.needs_kept(build(most + 1))

    with invalid([f"{field}: {text}"]):
        await api.create("resourceclaims", {"metadata": {"name": "on"}, "spec": build(most + 1)})
