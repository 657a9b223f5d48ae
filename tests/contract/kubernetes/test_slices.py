"""What the server holds ResourceSlices to."""

import copy
from typing import Any

import pytest

from dray.messages.facts import ClusterObserved


def slice_of(api: Any, *devices: Any, **spec: Any) -> dict[str, Any]:
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": api.unique("slice")},
        "spec": {
            "driver": "gpus.example.com",
            "nodeName": "node-1",
            "pool": pool,
            "devices": list(devices),
            **spec,
        },
    }


def device(**more: Any) -> dict[str, Any]:
    return {"name": "gpu-0", **more}


def shared(policy: Any, value: str = "80Gi") -> dict[str, Any]:
    capacity = {"vram": {"value": value, "requestPolicy": policy}}
    return device(allowMultipleAllocations=True, capacity=capacity)


def as_kept(card: dict[str, Any], keeps: ClusterObserved) -> dict[str, Any]:
    """The device without the fields that a server drops unseen, each with its feature gate."""
    kept = copy.deepcopy(card)
    if not keeps.consumable_capacity:
        kept.pop("allowMultipleAllocations", None)
        for capacity in kept.get("capacity", {}).values():
            capacity.pop("requestPolicy", None)
    if not keeps.device_taints:
        kept.pop("taints", None)
    if not keeps.partitionable_devices:
        kept.pop("nodeName", None)
    return kept


async def causes_of(api: Any, refused: Any, body: Any) -> list[tuple[str, str]]:
    with pytest.raises(refused) as caught:
        await api.create("resourceslices", body)
    assert caught.value.code == 422
    return list(caught.value.causes())


async def test_a_slice_as_dray_publishes_it_is_accepted(api: Any) -> None:
    virtual = {"default": "80Gi", "validRange": {"min": "1"}}
    physical = {"default": "0", "validValues": ["0"]}
    card = device(
        allowMultipleAllocations=True,
        attributes={"model": {"string": "A100"}, "slots": {"int": 8}, "ok": {"bool": True}},
        capacity={
            "vram": {"value": "80Gi", "requestPolicy": physical},
            "virtual_vram": {"value": "80Gi", "requestPolicy": virtual},
        },
        taints=[{"key": "tensor-fusion.ai/owner", "value": "dray", "effect": "NoSchedule"}],
    )

    made = await api.create("resourceslices", slice_of(api, card))

    assert made["metadata"]["generation"] == 1
    seen = made["spec"]["devices"][0]
    for taint in seen.get("taints", []):
        assert taint.pop("timeAdded")
    assert seen == as_kept(card, api.keeps)


async def test_the_generation_grows_with_the_spec_only(api: Any) -> None:
    made = await api.create("resourceslices", slice_of(api, device()))
    name = made["metadata"]["name"]

    labelled = await api.patch("resourceslices", name, {"metadata": {"labels": {"a": "b"}}})
    grown = await api.patch("resourceslices", name, {"spec": {"pool": {"generation": 2}}})

    assert labelled["metadata"]["generation"] == 1
    assert grown["metadata"]["generation"] == 2


IMMUTABLE = [
    ("spec.driver", {"driver": "other.example.com"}),
    ("spec.pool.name", {"pool": {"name": "node-2"}}),
    ("spec.nodeName", {"nodeName": "node-2"}),
]


@pytest.mark.parametrize(("field", "change"), IMMUTABLE)
async def test_identity_is_immutable(api: Any, refused: Any, field: str, change: Any) -> None:
    made = await api.create("resourceslices", slice_of(api, device()))

    with pytest.raises(refused) as caught:
        await api.patch("resourceslices", made["metadata"]["name"], {"spec": change})

    [(seen, message)] = caught.value.causes()
    assert seen == field
    assert message.endswith("field is immutable")


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
    "a version that is none": (
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


async def test_a_slice_names_one_kind_of_node(api: Any, refused: Any) -> None:
    both = await causes_of(api, refused, slice_of(api, allNodes=True))
    body = slice_of(api)
    del body["spec"]["nodeName"]
    none = await causes_of(api, refused, body)

    kinds = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    assert none == [("spec", f"Required value: exactly one of {kinds}")]
    value = 'Invalid value: "{`nodeName`, `allNodes`}"'
    expected = f"{value}: exactly one of {kinds}, but multiple fields are set"
    assert both == [("spec", expected)]


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


async def test_the_pool_is_counted_and_named(api: Any, refused: Any) -> None:
    pool = {"name": "", "generation": -1, "resourceSliceCount": 0}

    seen = await causes_of(api, refused, slice_of(api, pool=pool))

    assert sorted(seen) == [
        ("spec.pool.generation", "Invalid value: -1: must be greater than or equal to zero"),
        ("spec.pool.name", "Required value"),
        ("spec.pool.resourceSliceCount", "Invalid value: 0: must be greater than zero"),
    ]


async def test_the_seed_form_of_an_attribute_is_unknown(api: Any, refused: Any) -> None:
    body = slice_of(api, device(attributes={"model": {"stringValue": "A100"}}))

    with pytest.raises(refused) as caught:
        await api.create("resourceslices", body, fieldValidation="Strict")

    field = "spec.devices[0].attributes.model.stringValue"
    assert caught.value.code == 400
    assert caught.value.message.endswith(f'strict decoding error: unknown field "{field}"')


async def test_slices_are_selected_by_driver_and_node(api: Any) -> None:
    driver = f"{api.namespace}.example.com"
    one = await api.create("resourceslices", slice_of(api, driver=driver))
    await api.create("resourceslices", slice_of(api, driver=driver, nodeName="node-2"))

    both = await api.names("resourceslices", fieldSelector=f"spec.driver={driver}")
    selector = f"spec.driver={driver},spec.nodeName=node-1"
    first = await api.names("resourceslices", fieldSelector=selector)

    assert len(both) == 2
    assert first == [one["metadata"]["name"]]


async def test_v1beta2_is_not_served(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.call("GET", "/apis/resource.k8s.io/v1beta2")

    assert caught.value.code == 404
