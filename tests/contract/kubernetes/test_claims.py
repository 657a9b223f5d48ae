"""What the server holds the allocation and the reservations of ResourceClaims to."""

from typing import Any

import pytest

IMMUTABLE = {37: "field cannot be modified once set"}
"""What other minors than the sandbox's say of an allocation that may not change."""


@pytest.fixture
async def allocated(api: Any) -> Any:
    """A claim with an allocation that nobody reserves."""
    await api.create("resourceclaims", api.claim("one"))
    status = {"status": {"allocation": api.allocation()}}
    return await api.patch("resourceclaims", "one", status, "status")


async def test_a_main_write_leaves_the_status_alone(api: Any, allocated: Any) -> None:
    changed = dict(allocated, status={})
    changed["metadata"] = {**allocated["metadata"], "labels": {"a": "1"}}

    after = await api.put("resourceclaims", changed)

    assert after["metadata"]["labels"] == {"a": "1"}
    assert after["status"] == allocated["status"]


async def test_a_status_write_leaves_the_rest_alone(api: Any) -> None:
    made = await api.create("resourceclaims", api.claim("one"))
    made["metadata"]["labels"] = {"a": "1"}
    made["spec"]["devices"]["requests"][0]["exactly"]["count"] = 5
    made["status"] = {"allocation": api.allocation()}

    after = await api.put("resourceclaims", made, "status")

    assert "labels" not in after["metadata"]
    assert after["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert after["status"]["allocation"] == api.allocation()


async def test_the_status_given_at_creation_is_dropped(api: Any) -> None:
    body = api.claim("one") | {"status": {"allocation": api.allocation()}}

    assert (await api.create("resourceclaims", body))["status"] == {}


async def test_an_allocation_may_not_change(api: Any, refused: Any, allocated: Any) -> None:
    other = {"status": {"allocation": api.allocation(device="gpu-1")}}

    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", other, "status")

    assert caught.value.code == 422
    [(field, message)] = caught.value.causes()
    assert field == "status.allocation"
    assert message.endswith(IMMUTABLE.get(api.minor, "field is immutable"))


async def test_an_allocation_may_get_no_timestamp_later(
    api: Any, refused: Any, allocated: Any
) -> None:
    stamp = {"status": {"allocation": {"allocationTimestamp": "2026-01-01T00:00:00Z"}}}
    if not api.keeps_stamps:
        after = await api.patch("resourceclaims", "one", stamp, "status")
        assert after["status"] == allocated["status"]
        return

    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", stamp, "status")

    assert caught.value.causes()[0][0] == "status.allocation"


async def test_a_whole_allocation_may_be_cleared(api: Any, allocated: Any) -> None:
    after = await api.patch("resourceclaims", "one", {"status": {"allocation": None}}, "status")

    assert after["status"] == {}


async def test_a_reserved_allocation_may_not_be_cleared(
    api: Any, refused: Any, allocated: Any
) -> None:
    await api.patch("resourceclaims", "one", {"status": {"reservedFor": [api.user("p")]}}, "status")

    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", {"status": {"allocation": None}}, "status")

    assert caught.value.causes() == [
        ("status.reservedFor", "Forbidden: may not be specified when `allocated` is not set")
    ]


async def test_a_reservation_needs_an_allocation(api: Any, refused: Any) -> None:
    await api.create("resourceclaims", api.claim("one"))
    patch = {"status": {"reservedFor": [api.user("p")]}}

    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", patch, "status")

    assert caught.value.causes() == [
        ("status.reservedFor", "Forbidden: may not be specified when `allocated` is not set")
    ]


async def test_a_deleted_claim_takes_no_new_reservation(
    api: Any, refused: Any, allocated: Any
) -> None:
    first = {"status": {"reservedFor": [api.user("p")]}}
    await api.patch("resourceclaims", "one", first, "status")
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    await api.patch("resourceclaims", "one", held)
    await api.delete("resourceclaims", "one")
    both = {"status": {"reservedFor": [api.user("p"), api.user("q")]}}

    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", both, "status")

    expected = (
        "Forbidden: new entries may not be added while `deallocationRequested` or "
        "`deletionTimestamp` are set"
    )
    assert caught.value.causes() == [("status.reservedFor", expected)]
    await api.patch("resourceclaims", "one", {"metadata": {"finalizers": None}})


async def test_reservations_are_merged_by_uid_in_a_strategic_patch(
    api: Any, allocated: Any
) -> None:
    one, two = api.user("p"), api.user("q")
    for user in (one, two):
        patch = {"status": {"reservedFor": [user]}}
        await api.patch("resourceclaims", "one", patch, "status", kind="strategic")
    gone = {"status": {"reservedFor": [{"$patch": "delete", "uid": one["uid"]}]}}

    after = await api.patch("resourceclaims", "one", gone, "status", kind="strategic")

    assert after["status"]["reservedFor"] == [two]


async def test_a_reservation_names_its_user_completely(
    api: Any, refused: Any, allocated: Any
) -> None:
    patch = {"status": {"reservedFor": [{"resource": "pods"}]}}
    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", patch, "status")

    assert caught.value.causes() == [
        ("status.reservedFor[0].name", "Required value"),
        ("status.reservedFor[0].uid", "Required value"),
    ]


async def test_results_refer_to_requests_of_the_spec(api: Any, refused: Any) -> None:
    await api.create("resourceclaims", api.claim("one"))
    patch = {"status": {"allocation": api.allocation("other")}}

    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", patch, "status")

    expected = (
        'Invalid value: "other": must be the name of a request in the claim or the name of a '
        "request and a subrequest separated by '/'"
    )
    assert caught.value.causes() == [("status.allocation.devices.results[0].request", expected)]


async def test_results_may_refer_to_subrequests(api: Any) -> None:
    option = {"name": "big", "deviceClassName": "gpus.example.com"}
    await api.create(
        "resourceclaims", api.claim("one", {"name": "gpu", "firstAvailable": [option]})
    )
    patch = {"status": {"allocation": api.allocation("gpu/big")}}

    after = await api.patch("resourceclaims", "one", patch, "status")

    assert after["status"]["allocation"]["devices"]["results"][0]["request"] == "gpu/big"


async def test_an_allocation_has_at_most_32_results(api: Any, refused: Any) -> None:
    await api.create("resourceclaims", api.claim("one", api.request("gpu", allocationMode="All")))
    results = [
        api.allocation(device=f"gpu-{index}")["devices"]["results"][0] for index in range(33)
    ]
    patch = {"status": {"allocation": {"devices": {"results": results}}}}

    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", patch, "status")

    expected = [("status.allocation.devices.results", "Too many: 33: must have at most 32 items")]
    assert caught.value.causes() == expected


async def test_the_finalizer_of_an_allocated_claim_is_not_demanded(allocated: Any) -> None:
    assert "finalizers" not in allocated["metadata"]


async def test_share_and_consumed_capacity_are_kept(api: Any) -> None:
    await api.create("resourceclaims", api.claim("one"))
    allocation = api.allocation()
    share = "11111111-2222-3333-4444-555555555555"
    result = allocation["devices"]["results"][0]
    result |= {"shareID": share, "consumedCapacity": {"virtual_vram": "2048Mi"}}
    allocation["allocationTimestamp"] = "2026-01-01T00:00:00Z"

    patch = {"status": {"allocation": allocation}}
    after = await api.patch("resourceclaims", "one", patch, "status")

    seen = after["status"]["allocation"]["devices"]["results"][0]
    if api.keeps.consumable_capacity:
        assert (seen["shareID"], seen["consumedCapacity"]) == (share, {"virtual_vram": "2Gi"})
    else:
        assert not {"shareID", "consumedCapacity"} & seen.keys()
    stamp = after["status"]["allocation"].get("allocationTimestamp")
    assert stamp == ("2026-01-01T00:00:00Z" if api.keeps_stamps else None)


async def test_a_deleted_claim_is_shown(api: Any) -> None:
    await api.create("resourceclaims", api.claim("one"))

    answer = await api.delete("resourceclaims", "one")

    assert (answer["kind"], answer["metadata"]["name"]) == ("ResourceClaim", "one")


async def test_an_allocation_timestamp_keeps_whole_seconds(api: Any) -> None:
    await api.create("resourceclaims", api.claim("one"))
    allocation = api.allocation() | {"allocationTimestamp": "2026-01-01T01:00:00.7+01:00"}

    patch = {"status": {"allocation": allocation}}
    after = await api.patch("resourceclaims", "one", patch, "status")

    stamp = after["status"]["allocation"].get("allocationTimestamp")
    assert stamp == ("2026-01-01T00:00:00Z" if api.keeps_stamps else None)
