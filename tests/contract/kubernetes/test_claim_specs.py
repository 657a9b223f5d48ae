"""What the server holds the requests of ResourceClaims to."""

from typing import Any

import pytest


async def test_defaults_are_one_device_exactly(api: Any) -> None:
    made = await api.create("resourceclaims", api.claim("one"))

    exactly = made["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)


async def test_quantities_come_back_in_canonical_form(api: Any) -> None:
    asked = {"requests": {"a": "1024Mi", "b": "0.5", "c": "1000m", "d": "1e3", "e": "1536Mi"}}
    made = await api.create("resourceclaims", api.claim("one", api.request("gpu", capacity=asked)))

    exactly = made["spec"]["devices"]["requests"][0]["exactly"]
    if not api.keeps.consumable_capacity:
        assert "capacity" not in exactly
        return
    assert exactly["capacity"]["requests"] == {
        "a": "1Gi",
        "b": "500m",
        "c": "1",
        "d": "1e3",
        "e": "1536Mi",
    }


async def test_the_spec_is_immutable(api: Any, refused: Any) -> None:
    made = await api.create("resourceclaims", api.claim("one"))
    made["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2

    with pytest.raises(refused) as caught:
        await api.put("resourceclaims", made)

    assert caught.value.code == 422
    [(field, message)] = caught.value.causes()
    assert field == "spec"
    assert message.endswith("field is immutable")


@pytest.mark.parametrize("changed", [1, 1.0])
async def test_a_parameter_that_changes_its_type_is_changed(
    api: Any, refused: Any, changed: object
) -> None:
    opaque = {"driver": "d.example.com", "parameters": {"on": True}}
    body = api.claim("one")
    body["spec"]["devices"]["config"] = [{"opaque": opaque}]
    made = await api.create("resourceclaims", body)
    made["spec"]["devices"]["config"][0]["opaque"]["parameters"]["on"] = changed

    with pytest.raises(refused) as caught:
        await api.put("resourceclaims", made)

    [(field, message)] = caught.value.causes()
    assert field == "spec"
    assert message.endswith("field is immutable")


STRAY = "spec.devices.requests[0].allocationMode"


async def test_strict_validation_names_unknown_fields(api: Any, refused: Any) -> None:
    body = api.claim("bad", api.request("gpu") | {"allocationMode": "All"})

    with pytest.raises(refused) as caught:
        await api.create("resourceclaims", body, fieldValidation="Strict")

    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    assert caught.value.message == (
        'ResourceClaim in version "v1" cannot be handled as a ResourceClaim: '
        f'strict decoding error: unknown field "{STRAY}"'
    )


async def test_unknown_fields_are_dropped_with_a_warning(api: Any) -> None:
    body = api.claim("one", api.request("gpu") | {"allocationMode": "All"})

    made = await api.create("resourceclaims", body, fieldValidation="Warn")

    assert "allocationMode" not in made["spec"]["devices"]["requests"][0]
    assert api.warnings == [f'299 - "unknown field \\"{STRAY}\\""']


async def test_a_toleration_means_equal_unless_it_says_otherwise(api: Any) -> None:
    request = api.request("gpu", tolerations=[{"key": "a", "value": "b"}])

    made = await api.create("resourceclaims", api.claim("one", request))

    exactly = made["spec"]["devices"]["requests"][0]["exactly"]
    kept = [{"key": "a", "operator": "Equal", "value": "b"}] if api.keeps_tolerations else None
    assert exactly.get("tolerations") == kept


async def test_admin_access_needs_a_labelled_namespace(api: Any, refused: Any) -> None:
    claim = api.claim("one", api.request("gpu", adminAccess=True))
    with pytest.raises(refused) as caught:
        await api.create("resourceclaims", claim)
    assert caught.value.causes()[0][0] == "spec.devices.requests[0].adminAccess"
    label = {"resource.kubernetes.io/admin-access": "true"}
    await api.patch("namespaces", api.namespace, {"metadata": {"labels": label}})

    made = await api.create("resourceclaims", claim)

    assert made["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] is True


async def test_a_claim_without_requests_is_possible(api: Any) -> None:
    made = await api.create("resourceclaims", {"metadata": {"name": "one"}})

    assert made["spec"] == {"devices": {"requests": None}}
