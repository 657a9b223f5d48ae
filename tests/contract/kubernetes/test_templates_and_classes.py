"""What the server holds ResourceClaimTemplates and DeviceClasses to."""

from typing import Any

import pytest


def template(name: str, *requests: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "metadata": {"labels": {"made": "yes"}},
            "spec": {"devices": {"requests": list(requests)}},
        },
    }


async def test_a_template_is_defaulted_and_immutable(api: Any, refused: Any) -> None:
    made = await api.create("resourceclaimtemplates", template("one", api.request("gpu")))
    exactly = made["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly["count"] == 1
    changed = {"spec": {"metadata": {"labels": {"made": "no"}}}}

    with pytest.raises(refused) as caught:
        await api.patch("resourceclaimtemplates", "one", changed)

    [(field, message)] = caught.value.causes()
    assert field == "spec"
    assert message.endswith("field is immutable")


async def test_a_template_is_validated_like_a_claim(api: Any, refused: Any) -> None:
    bad = template("bad", {"name": "gpu", "exactly": {}})
    with pytest.raises(refused) as caught:
        await api.create("resourceclaimtemplates", bad)

    field = "spec.spec.devices.requests[0].exactly.deviceClassName"
    assert caught.value.causes() == [(field, "Required value")]
    kind = "ResourceClaimTemplate.resource.k8s.io"
    assert caught.value.message == f'{kind} "bad" is invalid: {field}: Required value'


async def test_a_template_gives_its_claims_labels_and_annotations_alone(
    api: Any, refused: Any
) -> None:
    bad = template("bad", api.request("gpu"))
    bad["spec"]["metadata"] |= {"name": "claim", "annotations": {"made": "yes"}}
    with pytest.raises(refused) as caught:
        await api.create("resourceclaimtemplates", bad)

    assert caught.value.causes() == [("spec.metadata.name", "Forbidden: cannot be set")]


async def test_the_seed_form_of_a_template_is_unknown(api: Any, refused: Any) -> None:
    request = {"name": "gpu", "allocationMode": "ExactCount", "exactly": {"selector": {}}}
    body = template("bad", request)

    with pytest.raises(refused) as caught:
        await api.create("resourceclaimtemplates", body, fieldValidation="Strict")

    assert 'unknown field "spec.spec.devices.requests[0].allocationMode"' in caught.value.message
    assert 'unknown field "spec.spec.devices.requests[0].exactly.selector"' in caught.value.message


async def test_a_device_class_may_change_and_is_counted(api: Any) -> None:
    name = api.unique("class")
    selectors = [{"cel": {"expression": 'device.driver == "gpus.example.com"'}}]
    made = await api.create("deviceclasses", {"metadata": {"name": name}, "spec": {}})

    changed = await api.patch("deviceclasses", name, {"spec": {"selectors": selectors}})

    assert made["metadata"]["generation"] == 1
    assert changed["metadata"]["generation"] == 2
