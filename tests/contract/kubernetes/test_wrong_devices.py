"""What the server refuses in the devices of ResourceSlices."""

from typing import Any

import pytest
from tests.contract.kubernetes.slices import as_kept, causes_of, device, shared, slice_of

CAPACITY = "spec.devices[0].capacity[vram].requestPolicy"
ATTRIBUTE = "spec.devices[0].attributes[model]"
BAD_DEVICES = {
    "two kinds of value": (
        device(attributes={"model": {"string": "A100", "int": 1}}),
        [(ATTRIBUTE, "exactly one value must be specified")],
    ),
    "no value": (
        device(attributes={"model": {}}),
        [(ATTRIBUTE, 'Invalid value: "": exactly one value must be specified')],
    ),
    "a long string": (
        device(attributes={"model": {"string": "x" * 65}}),
        [(f"{ATTRIBUTE}.string", "Too long: may not be more than 64 bytes")],
    ),
    "an invalid version": (
        device(attributes={"model": {"version": "v1"}}),
        [
            (
                f"{ATTRIBUTE}.version",
                'Invalid value: "v1": must be a string compatible with semver.org spec 2.0.0',
            )
        ],
    ),
    "a range without default": (
        shared({"validRange": {"min": "1"}}),
        [(f"{CAPACITY}.default", "Required value: required when validRange is defined")],
    ),
    "values without default": (
        shared({"validValues": ["0"]}),
        [(f"{CAPACITY}.default", "Required value: required when validValues is defined")],
    ),
    "a default below the range": (
        shared({"default": "0", "validRange": {"min": "1Gi"}}),
        [(f"{CAPACITY}.validRange.min", 'Invalid value: "0": default is less than min: 1Gi')],
    ),
    "a range above the size": (
        shared({"default": "90Gi", "validRange": {"min": "90Gi"}}),
        [
            (
                f"{CAPACITY}.validRange.min",
                'Invalid value: "90Gi": min is larger than capacity value: 80Gi',
            )
        ],
    ),
    "a default outside the values": (
        shared({"default": "3Gi", "validValues": ["1Gi", "2Gi"]}),
        [
            (
                f"{CAPACITY}.validValues",
                'Invalid value: "3Gi": default value is not valid according to the requestPolicy',
            )
        ],
    ),
    "values out of order": (
        shared({"default": "1Gi", "validValues": ["2Gi", "1Gi"]}),
        [
            (
                f"{CAPACITY}.validValues[1]",
                'Invalid value: "1Gi": values must be sorted in ascending order',
            )
        ],
    ),
    "values and a range": (
        shared({"default": "1Gi", "validValues": ["1Gi"], "validRange": {"min": "1Gi"}}),
        [
            (
                CAPACITY,
                'Forbidden: exactly one policy can be specified, cannot specify "validValues" and '
                '"validRange" at the same time',
            )
        ],
    ),
    "a policy on an unshared device": (
        device(capacity={"vram": {"value": "80Gi", "requestPolicy": {"default": "0"}}}),
        [(CAPACITY, "Forbidden: allowMultipleAllocations must be true")],
    ),
    "33 attributes": (
        device(attributes={f"a{i}": {"int": i} for i in range(33)}),
        [
            (
                "spec.devices[0]",
                "Invalid value: 33: the total number of attributes and capacities must not "
                "exceed 32",
            )
        ],
    ),
    "a taint without effect": (
        device(taints=[{"key": "a"}]),
        [("spec.devices[0].taints[0].effect", "Required value")],
    ),
    "an unknown effect": (
        device(taints=[{"key": "a", "effect": "Maybe"}]),
        [
            (
                "spec.devices[0].taints[0].effect",
                'Unsupported value: "Maybe": supported values: "NoExecute", "NoSchedule", "None"',
            )
        ],
    ),
    "a node of its own": (
        device(nodeName="node-1"),
        [
            (
                "spec.devices[0]",
                "Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set "
                "if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            )
        ],
    ),
}

KINDS_37 = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"
IN_OTHER_MINORS = {
    34: {
        "no value": [(ATTRIBUTE, "Required value: exactly one value must be specified")],
    },
    37: {
        "two kinds of value": [(ATTRIBUTE, f"must specify exactly one of: {KINDS_37}")],
        "no value": [(ATTRIBUTE, f"must specify one of: {KINDS_37}")],
        "a default below the range": [
            (
                f"{CAPACITY}.validRange.default",
                'Invalid value: "0": default is less than min: 1Gi',
            )
        ],
    },
}
"""What other minors than the sandbox's say, where it differs."""


@pytest.mark.parametrize("what", BAD_DEVICES)
async def test_a_wrong_device_is_refused_for_what_is_kept_of_it(
    api: Any, refused: Any, what: str
) -> None:
    body, expected = BAD_DEVICES[what]
    expected = IN_OTHER_MINORS.get(api.minor, {}).get(what, expected)
    if (kept := as_kept(body, api.keeps)) != body:
        made = await api.create("resourceslices", slice_of(api, body))
        assert made["spec"]["devices"] == [kept]
        assert api.warnings == []
        return

    seen = await causes_of(api, refused, slice_of(api, body))

    assert [field for field, _ in seen] == [field for field, _ in expected]
    for (_, message), (_, text) in zip(seen, expected, strict=True):
        assert message.endswith(text)


async def test_more_than_128_devices_or_64_tainted_are_too_many(api: Any, refused: Any) -> None:
    plain = [{"name": f"gpu-{i}"} for i in range(129)]
    taint = {"key": "a", "effect": "NoSchedule"}
    tainted = [{"name": f"gpu-{i}", "taints": [taint]} for i in range(65)]

    first = await causes_of(api, refused, slice_of(api, *plain))

    assert first == [("spec.devices", "Too many: 129: must have at most 128 items")]
    if not api.keeps.device_taints:
        made = await api.create("resourceslices", slice_of(api, *tainted))
        assert made["spec"]["devices"] == plain[:65]
        return
    second = await causes_of(api, refused, slice_of(api, *tainted))
    assert second == [("spec.devices", "Too many: 65: must have at most 64 items")]


async def test_a_device_twice_is_refused(api: Any, refused: Any) -> None:
    seen = await causes_of(api, refused, slice_of(api, device(), device()))

    field = "spec.devices[1].name" if api.minor == 34 else "spec.devices[1]"
    assert seen == [(field, 'Duplicate value: "gpu-0"')]
