"""What the server holds ResourceSlices to."""

from typing import Any

import pytest
from tests.contract.kubernetes.slices import as_kept, causes_of, device, slice_of


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
