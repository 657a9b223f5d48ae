"""The limits of ResourceSlices: what is at one is taken, what is beyond it refused."""

from typing import Any

import pytest

POOL = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
TAINT = {"key": "a", "effect": "NoSchedule"}


def spec(*devices: Any, **more: Any) -> dict[str, Any]:
    described: dict[str, Any] = {"driver": "example.com", "pool": POOL, "nodeName": "node-1"}
    if devices:
        described["devices"] = list(devices)
    return described | more


def device(name: str = "gpu-0", **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def devices(count: int) -> dict[str, Any]:
    return spec(*(device(f"gpu-{i}") for i in range(count)))


def devices_with_a_taint(count: int) -> dict[str, Any]:
    return spec(device("gpu-0", taints=[TAINT]), *devices(count)["devices"][1:])


def devices_with_a_counter(count: int) -> dict[str, Any]:
    used = [{"counterSet": "a", "counters": {"b": {"value": "1"}}}]
    return spec(device("gpu-0", consumesCounters=used), *devices(count)["devices"][1:])


def attributes(count: int) -> dict[str, Any]:
    return spec(device(attributes={f"a{i}": {"int": i} for i in range(count)}))


def attributes_and_capacities(count: int) -> dict[str, Any]:
    half = {f"a{i}": {"int": i} for i in range(16)}
    rest = {f"c{i}": {"value": "1"} for i in range(count - 16)}
    return spec(device(attributes=half, capacity=rest))


def text(size_bytes: int) -> dict[str, Any]:
    return spec(device(attributes={"a": {"string": "x" * size_bytes}}))


def version(size_bytes: int) -> dict[str, Any]:
    return spec(device(attributes={"a": {"version": "1.0.0-" + "x" * (size_bytes - 6)}}))


def identifier(size_bytes: int) -> dict[str, Any]:
    return spec(device(attributes={"i" * size_bytes: {"int": 1}}))


def domain(size_bytes: int) -> dict[str, Any]:
    return spec(device(capacity={"d" * size_bytes + "/c": {"value": "1"}}))


def device_name(size_bytes: int) -> dict[str, Any]:
    return spec(device("g" * size_bytes))


def taints(count: int) -> dict[str, Any]:
    return spec(device(taints=[{**TAINT, "key": f"k{i}"} for i in range(count)]))


def valid_values(count: int) -> dict[str, Any]:
    policy = {"default": "1", "validValues": [str(i + 1) for i in range(count)]}
    capacity = {"vram": {"value": "100", "requestPolicy": policy}}
    return spec(device(allowMultipleAllocations=True, capacity=capacity))


def conditions(count: int) -> dict[str, Any]:
    wait = [f"w{i}" for i in range(count)]
    return spec(device(bindingConditions=wait, bindingFailureConditions=["f"]))


def failures(count: int) -> dict[str, Any]:
    fail = [f"f{i}" for i in range(count)]
    return spec(device(bindingConditions=["w"], bindingFailureConditions=fail))


def counters(count: int) -> dict[str, Any]:
    return {f"c{i}": {"value": "1"} for i in range(count)}


def counter_sets(count: int) -> dict[str, Any]:
    return spec(sharedCounters=[{"name": f"s{i}", "counters": counters(1)} for i in range(count)])


def counters_of_a_set(count: int) -> dict[str, Any]:
    return spec(sharedCounters=[{"name": "s", "counters": counters(count)}])


def sets_consumed(count: int) -> dict[str, Any]:
    used = [{"counterSet": f"s{i}", "counters": counters(1)} for i in range(count)]
    return spec(device(consumesCounters=used))


def counters_consumed(count: int) -> dict[str, Any]:
    return spec(device(consumesCounters=[{"counterSet": "s", "counters": counters(count)}]))


def pool_name(size_bytes: int) -> dict[str, Any]:
    return spec(pool={**POOL, "name": "a/" + "b" * (size_bytes - 2)})


def driver(size_bytes: int) -> dict[str, Any]:
    return spec(driver="d" * size_bytes)


def many(seen: int, most: int) -> str:
    return f"Too many: {seen}: must have at most {most} items"


D = "spec.devices"
TOTAL = "Invalid value: 33: the total number of attributes and capacities must not exceed 32"
LIMITS: dict[str, tuple[Any, int, str, str]] = {
    "128 devices": (devices, 128, D, many(129, 128)),
    "64 devices where one has a taint": (devices_with_a_taint, 64, D, many(65, 64)),
    "64 devices where one consumes a counter": (devices_with_a_counter, 64, D, many(65, 64)),
    "32 attributes": (attributes, 32, f"{D}[0]", TOTAL),
    "32 attributes and capacities": (attributes_and_capacities, 32, f"{D}[0]", TOTAL),
    "64 bytes of a string": (
        text,
        64,
        f"{D}[0].attributes[a].string",
        "Too long: may not be more than 64 bytes",
    ),
    "64 bytes of a version": (
        version,
        64,
        f"{D}[0].attributes[a].version",
        "Too long: may not be more than 64 bytes",
    ),
    "32 bytes of an attribute's name": (
        identifier,
        32,
        f"{D}[0].attributes",
        "Too long: may not be more than 32 bytes",
    ),
    "63 bytes of a capacity's domain": (
        domain,
        63,
        f"{D}[0].capacity",
        "Too long: may not be more than 63 bytes",
    ),
    "63 characters of a device's name": (
        device_name,
        63,
        f"{D}[0].name",
        f'Invalid value: "{"g" * 64}": must be no more than 63 characters',
    ),
    "16 taints": (taints, 16, f"{D}[0].taints", many(17, 16)),
    "10 valid values": (
        valid_values,
        10,
        f"{D}[0].capacity[vram].requestPolicy.validValues",
        many(11, 10),
    ),
    "4 binding conditions": (conditions, 4, f"{D}[0].bindingConditions", many(5, 4)),
    "4 binding failure conditions": (
        failures,
        4,
        f"{D}[0].bindingFailureConditions",
        many(5, 4),
    ),
    "8 counter sets": (counter_sets, 8, "spec.sharedCounters", many(9, 8)),
    "32 counters of a set": (
        counters_of_a_set,
        32,
        "spec.sharedCounters[0].counters",
        many(33, 32),
    ),
    "2 counter sets of a device": (sets_consumed, 2, f"{D}[0].consumesCounters", many(3, 2)),
    "32 counters of a device": (
        counters_consumed,
        32,
        f"{D}[0].consumesCounters[0].counters",
        many(33, 32),
    ),
    "253 bytes of a pool's name": (
        pool_name,
        253,
        "spec.pool.name",
        "Too long: may not be more than 253 bytes",
    ),
    "63 bytes of a driver's name": (
        driver,
        63,
        "spec.driver",
        "Too long: may not be more than 63 bytes",
    ),
}
FIELDS_UNTIL_35 = {
    "32 bytes of an attribute's name": f"{D}[0].attributes[{'i' * 33}]",
    "63 bytes of a capacity's domain": f"{D}[0].capacity[{'d' * 64}/c]",
}
"""1.34 and 1.35 tell a key at itself."""


@pytest.mark.parametrize("limit", LIMITS)
async def test_at_a_limit_a_slice_is_taken(api: Any, limit: str) -> None:
    build, most, _, _ = LIMITS[limit]

    await api.create("resourceslices", {"metadata": {"name": api.unique("s")}, "spec": build(most)})


@pytest.mark.parametrize("limit", LIMITS)
async def test_beyond_a_limit_a_slice_is_refused(api: Any, refused: Any, limit: str) -> None:
    build, most, field, text = LIMITS[limit]
    field = FIELDS_UNTIL_35.get(limit, field) if api.minor <= 35 else field
    body = {"metadata": {"name": api.unique("s")}, "spec": build(most + 1)}
    api.needs_kept(body)

    with pytest.raises(refused) as caught:
        await api.create("resourceslices", body)

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    expected = [f"{field}: {text}"]
    assert caught.value.starts(expected, api.minor)[:1] == expected
