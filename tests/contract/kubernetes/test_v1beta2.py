"""`resource.k8s.io/v1beta2`, if a server serves it: one object in two versions."""

from typing import Any

import pytest
from tests.conformance.left_out import only_where

BETA = "resource.k8s.io/v1beta2"
CLAIMS, SLICES = f"{BETA}/resourceclaims", f"{BETA}/resourceslices"


def claim(name: str, **request: Any) -> dict[str, Any]:
    wanted = {"name": "gpu", **(request or {"exactly": {"deviceClassName": "x"}})}
    return {
        "apiVersion": BETA,
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [wanted]}},
    }


def slice_of_the_seed(api: Any) -> dict[str, Any]:
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    device = {"name": "gpu-0", "attributes": {"model": {"stringValue": "A100"}}}
    spec = {"driver": "example.com", "nodeName": "node-1", "pool": pool, "devices": [device]}
    return {"metadata": {"name": api.unique("s")}, "spec": spec}


THE_SEEDS = {"allocationMode": "ExactCount", "exactly": {"selector": {"cel": "true"}}}
"""What the seeds' claims ask with."""


@pytest.fixture(scope="module")
def target(target_with_v1beta2: Any) -> Any:
    return target_with_v1beta2


async def test_both_versions_are_listed_and_v1_is_preferred(api: Any) -> None:
    group = await api.call("GET", "/apis/resource.k8s.io")

    assert [entry["version"] for entry in group["versions"]] == ["v1", "v1beta2"]
    assert group["preferredVersion"]["version"] == "v1"


async def test_a_claim_made_in_one_version_is_read_in_the_other(api: Any) -> None:
    made = await api.create(CLAIMS, claim("one"))
    other = await api.create("resourceclaims", api.claim("two"))

    seen = await api.get("resourceclaims", "one")
    shown = await api.get(CLAIMS, "two")

    assert (made["apiVersion"], seen["apiVersion"]) == (BETA, "resource.k8s.io/v1")
    exactly = {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}
    assert seen["spec"] == made["spec"]
    assert seen["spec"]["devices"]["requests"] == [{"name": "gpu", "exactly": exactly}]
    assert seen["metadata"]["uid"] == made["metadata"]["uid"]
    assert (shown["apiVersion"], shown["spec"]) == (BETA, other["spec"])


async def test_alternatives_are_the_same_in_both(api: Any) -> None:
    options = [{"name": "big", "deviceClassName": "x"}, {"name": "small", "deviceClassName": "y"}]

    made = await api.create(CLAIMS, claim("one", firstAvailable=options))

    assert (await api.get("resourceclaims", "one"))["spec"] == made["spec"]


async def test_a_list_and_a_watch_tell_objects_in_the_version_asked_for(api: Any) -> None:
    await api.create("resourceclaims", api.claim("one"))

    found = await api.get(CLAIMS)
    events = [event async for event in api.watch(CLAIMS, timeoutSeconds=1)]

    assert (found["kind"], found["apiVersion"]) == ("ResourceClaimList", BETA)
    assert [item["metadata"]["name"] for item in found["items"]] == ["one"]
    assert [event["object"]["apiVersion"] for event in events] == [BETA]


async def test_a_write_in_one_version_is_a_conflict_in_the_other(api: Any, refused: Any) -> None:
    await api.create(CLAIMS, claim("one"))
    before = await api.get("resourceclaims", "one")
    await api.patch(CLAIMS, "one", {"metadata": {"labels": {"a": "b"}}})

    with pytest.raises(refused) as caught:
        await api.put("resourceclaims", before)

    assert (caught.value.code, caught.value.reason) == (409, "Conflict")


async def test_a_put_of_what_was_read_in_the_other_version_changes_nothing(api: Any) -> None:
    await api.create("resourceclaims", api.claim("one"))
    seen = await api.get(CLAIMS, "one")

    again = await api.put(CLAIMS, seen)

    assert again["metadata"]["resourceVersion"] == seen["metadata"]["resourceVersion"]


async def test_a_status_is_written_in_either_version(api: Any) -> None:
    await api.create("resourceclaims", api.claim("one"))

    after = await api.patch(CLAIMS, "one", {"status": {"allocation": api.allocation()}}, "status")

    assert after["apiVersion"] == BETA
    seen = await api.get("resourceclaims", "one")
    assert seen["status"]["allocation"] == api.allocation()


async def test_a_spec_is_immutable_in_either_version(api: Any, refused: Any) -> None:
    made = await api.create("resourceclaims", api.claim("one"))
    made["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2

    with pytest.raises(refused) as caught:
        await api.put(CLAIMS, {**made, "apiVersion": BETA})

    assert [field for field, _ in caught.value.causes()] == ["spec"]


async def test_an_object_of_another_version_than_the_path_is_refused(
    api: Any, refused: Any
) -> None:
    with pytest.raises(refused) as caught:
        await api.create("resourceclaims", claim("one"))

    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    assert caught.value.message == (
        f"the API version in the data ({BETA}) does not match the expected API version "
        "(resource.k8s.io/v1)"
    )


async def test_the_claims_of_the_seed_are_refused_strictly(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.create(CLAIMS, claim("one", **THE_SEEDS), fieldValidation="Strict")

    assert caught.value.code == 400
    field = "spec.devices.requests[0]"
    assert caught.value.message.endswith(
        f'strict decoding error: unknown field "{field}.allocationMode", '
        f'unknown field "{field}.exactly.selector"'
    )


async def test_the_claims_of_the_seed_are_refused_leniently(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.create(CLAIMS, claim("one", **THE_SEEDS))

    request = "spec.devices.requests[0]"
    assert caught.value.causes() == [(f"{request}.exactly.deviceClassName", "Required value")]
    assert f'299 - "unknown field \\"{request}.allocationMode\\""' in api.warnings


async def test_the_slices_of_the_seed_are_refused_strictly(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.create(SLICES, slice_of_the_seed(api), fieldValidation="Strict")

    assert caught.value.code == 400
    field = "spec.devices[0].attributes.model.stringValue"
    assert caught.value.message.endswith(f'strict decoding error: unknown field "{field}"')


async def test_the_slices_of_the_seed_are_refused_leniently(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.create(SLICES, slice_of_the_seed(api))

    [(field, message)] = caught.value.causes()
    assert field == "spec.devices[0].attributes[model]"
    one = "must specify one of: " if api.minor >= 37 else "exactly one value must be specified"
    assert one in message


RULES = "devicetaintrules"


@pytest.fixture
async def rules(api: Any) -> str:
    """DeviceTaintRules in the version that the server has them in."""
    served = []
    for version in ("v1", "v1beta2"):
        found = await api.call("GET", f"/apis/resource.k8s.io/{version}")
        if RULES in [resource["name"] for resource in found["resources"]]:
            served.append(f"/apis/resource.k8s.io/{version}/{RULES}")
    only_where(bool(served), f"its API server has {RULES} in an alpha version alone")
    return served[0]


def condition(number: int) -> dict[str, str]:
    when = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"type": f"C{number}", "status": "True", "reason": "R", "message": "", **when}


async def made(api: Any, rules: str, **spec: Any) -> str:
    """A taint rule's path."""
    name = api.unique("rule")
    taint = {"key": "example.com/sick", "effect": "NoExecute"}
    await api.call("POST", rules, {"metadata": {"name": name}, "spec": {"taint": taint, **spec}})
    api.cleanup.append(f"{rules}/{name}")
    return f"{rules}/{name}"


async def test_a_taint_rule_selects_devices_by_name(api: Any, rules: str) -> None:
    selector = {"driver": "example.com", "pool": "node-1", "device": "gpu-0"}

    path = await made(api, rules, deviceSelector=selector)

    seen = await api.call("GET", path)
    assert seen["spec"]["deviceSelector"] == selector
    assert seen["spec"]["taint"]["timeAdded"]


async def test_a_wrong_taint_rule_is_refused(api: Any, refused: Any, rules: str) -> None:
    wrong = {"driver": "A_b", "pool": "", "device": "A_b"}

    with pytest.raises(refused) as caught:
        await made(api, rules, deviceSelector=wrong, taint={"key": "-"})

    assert sorted({field for field, _ in caught.value.causes()}) == [
        "spec.deviceSelector.device",
        "spec.deviceSelector.driver",
        "spec.deviceSelector.pool",
        "spec.taint.effect",
        "spec.taint.key",
    ]


async def test_a_taint_rule_has_at_most_8_conditions(api: Any, refused: Any, rules: str) -> None:
    path = await made(api, rules)
    kind = "application/merge-patch+json"

    async def set_conditions(count: int) -> Any:
        status = {"status": {"conditions": [condition(number) for number in range(count)]}}
        return await api.call("PATCH", f"{path}/status", status, kind=kind)

    after = await set_conditions(8)
    assert len(after["status"]["conditions"]) == 8

    with pytest.raises(refused) as caught:
        await set_conditions(9)

    expected = [("status.conditions", "Too many: 9: must have at most 8 items")]
    assert caught.value.causes() == expected
