"""The limits of a claim's status: what is at one is taken, what is beyond it refused."""

from typing import Any

import pytest

SPEC = {
    "devices": {
        "requests": [{"name": "gpu", "exactly": {"deviceClassName": "x", "allocationMode": "All"}}]
    }
}
DEVICE = {"driver": "example.com", "pool": "node-1", "device": "gpu-0"}
OPAQUE = {"driver": "example.com", "parameters": {"a": 1}}


def allocated(*more: Any, **of_the_first: Any) -> dict[str, Any]:
    result = {"request": "gpu", **DEVICE, **of_the_first}
    return {"allocation": {"devices": {"results": [result, *more]}}}


def results(count: int) -> dict[str, Any]:
    more = [{"request": "gpu", **DEVICE, "device": f"gpu-{i}"} for i in range(1, count)]
    return allocated(*more)


def configs(count: int) -> dict[str, Any]:
    config = [{"source": "FromClass", "opaque": OPAQUE}] * count
    return {"allocation": {"devices": {"config": config, **results(1)["allocation"]["devices"]}}}


def reservations(count: int) -> dict[str, Any]:
    users = [
        {"resource": "jobs", "apiGroup": "example.com", "name": f"j{i}", "uid": f"u{i}"}
        for i in range(count)
    ]
    return allocated() | {"reservedFor": users}


def conditions(count: int) -> dict[str, Any]:
    def condition(number: int) -> dict[str, Any]:
        when = "2026-01-01T00:00:00Z"
        described = {"type": f"C{number}", "status": "True", "reason": "R", "message": ""}
        return described | {"lastTransitionTime": when}

    return of_the_device(conditions=[condition(number) for number in range(count)])


def of_the_device(**more: Any) -> dict[str, Any]:
    return allocated() | {"devices": [DEVICE | more]}


def data(size_bytes: int) -> dict[str, Any]:
    return of_the_device(data={"a": "x" * (size_bytes - 8)})


def addresses(count: int) -> dict[str, Any]:
    return of_the_device(networkData={"ips": [f"10.0.0.{i}/24" for i in range(count)]})


def interface(size_bytes: int) -> dict[str, Any]:
    return of_the_device(networkData={"interfaceName": "e" * size_bytes})


def hardware(size_bytes: int) -> dict[str, Any]:
    return of_the_device(networkData={"hardwareAddress": "0" * size_bytes})


def binding_conditions(count: int) -> dict[str, Any]:
    wait = [f"w{i}" for i in range(count)]
    return allocated(bindingConditions=wait, bindingFailureConditions=["f"])


def many(seen: int, most: int) -> str:
    return f"Too many: {seen}: must have at most {most} items"


A = "status.allocation.devices"
LIMITS: dict[str, tuple[Any, int, str, str]] = {
    "32 results": (results, 32, f"{A}.results", many(33, 32)),
    "64 configs of an allocation": (configs, 64, f"{A}.config", many(65, 64)),
    "256 reservations": (reservations, 256, "status.reservedFor", many(257, 256)),
    "4 binding conditions of a result": (
        binding_conditions,
        4,
        f"{A}.results[0].bindingConditions",
        many(5, 4),
    ),
    "8 conditions of a device": (conditions, 8, "status.devices[0].conditions", many(9, 8)),
    "10 KiB of a device's data": (
        data,
        10240,
        "status.devices[0].data",
        "Too long: may not be more than 10240 bytes",
    ),
    "16 addresses of a device": (
        addresses,
        16,
        "status.devices[0].networkData.ips",
        many(17, 16),
    ),
    "256 bytes of an interface's name": (
        interface,
        256,
        "status.devices[0].networkData.interfaceName",
        "Too long: may not be more than 256 bytes",
    ),
    "128 bytes of a hardware address": (
        hardware,
        128,
        "status.devices[0].networkData.hardwareAddress",
        "Too long: may not be more than 128 bytes",
    ),
}


@pytest.mark.parametrize("limit", LIMITS)
async def test_a_status_at_a_limit_is_accepted(api: Any, limit: str) -> None:
    build, most, _, _ = LIMITS[limit]
    await api.create("resourceclaims", {"metadata": {"name": "one"}, "spec": SPEC})

    await api.patch("resourceclaims", "one", {"status": build(most)}, "status")


@pytest.mark.parametrize("limit", LIMITS)
async def test_beyond_a_limit_a_status_is_refused(api: Any, invalid: Any, limit: str) -> None:
    build, most, field, text = LIMITS[limit]
    api.needs_kept(build(most + 1))
    await api.create("resourceclaims", {"metadata": {"name": "one"}, "spec": SPEC})

    with invalid([f"{field}: {text}"]):
        await api.patch("resourceclaims", "one", {"status": build(most + 1)}, "status")
