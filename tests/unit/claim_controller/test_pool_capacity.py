"""What cards sum up to, and that the sums follow what changes."""

from typing import Any

from dray.api.names import DEVICE_CLASS, DRIVER, HEALTH_TAINT
from dray.kube.ports import CLAIMS, SLICES, Changed, Deleted, Object
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.pool_capacity import pool_totals


def published(node: str, revision: int, *vram: str) -> Object:
    devices = [
        {
            "name": f"gpu-{index}",
            "capacity": {"vram": {"value": one}, "virtual_vram": {"value": one}},
        }
        for index, one in enumerate(vram)
    ]
    pool = {"name": node, "generation": revision, "resourceSliceCount": 1}
    metadata = {"uid": f"slice-{node}", "name": node, "resourceVersion": str(revision)}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": metadata, "spec": spec}


def claim(uid: str, revision: int, *, node: str = "n", vram: str | None = None) -> Object:
    result: dict[str, Any] = {"request": "r", "driver": DRIVER, "pool": node, "device": "gpu-0"}
    if vram is not None:
        result["consumedCapacity"] = {"virtual_vram": vram}
    requests = [{"name": "r", "exactly": {"deviceClassName": DEVICE_CLASS}}]
    return {
        "metadata": {
            "uid": uid,
            "name": uid,
            "namespace": "ns",
            "resourceVersion": str(revision),
        },
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def of_two_nodes() -> ObjectCache:
    cache = ObjectCache()
    cache.apply(SLICES, Changed(published("n", 1, "40Gi", "40Gi")))
    cache.apply(SLICES, Changed(published("m", 2, "80Gi")))
    return cache


def test_only_the_cards_of_the_given_nodes_count() -> None:
    cache = of_two_nodes()
    assert pool_totals(cache, ["n"]).vram == {"total": "80Gi", "virtual": "80Gi", "free": "80Gi"}
    assert pool_totals(cache, ["n", "m"]).gpus == 3
    assert pool_totals(cache, []).vram == {"total": "0", "virtual": "0", "free": "0"}


def test_claims_that_come_and_go_are_seen() -> None:
    cache = of_two_nodes()
    before = pool_totals(cache, ["n"]).vram["free"]
    cache.apply(CLAIMS, Changed(claim("a", 3, vram="16Gi")))
    cache.apply(CLAIMS, Changed(claim("whole", 4, node="m")))
    held = [pool_totals(cache, [node]).vram["free"] for node in ("n", "m")]
    cache.apply(CLAIMS, Deleted(claim("a", 5)))
    assert (before, held) == ("80Gi", ["64Gi", "0"])
    assert pool_totals(cache, ["n"]).vram["free"] == "80Gi"


def test_cards_in_use_are_counted_and_those_of_which_nothing_is_left() -> None:
    cache = of_two_nodes()
    slice_ = published("n", 3, "40Gi", "40Gi")
    for device in slice_["spec"]["devices"]:
        device["capacity"]["virtual_tflops"] = {"value": "100"}
    cache.apply(SLICES, Changed(slice_))
    for revision, share in enumerate(("60", "40"), 4):
        one = claim(share, revision)
        (result,) = one["status"]["allocation"]["devices"]["results"]
        result["consumedCapacity"] = {"virtual_tflops": share}
        cache.apply(CLAIMS, Changed(one))
        totals = pool_totals(cache, ["n"])
        assert (totals.used, totals.full) == (1, share == "40")


def test_a_slice_that_changes_or_goes_is_seen() -> None:
    cache = of_two_nodes()
    assert pool_totals(cache, ["n"]).gpus == 2
    cache.apply(SLICES, Changed(published("n", 6, "20Gi")))
    assert pool_totals(cache, ["n"]).vram["total"] == "20Gi"
    cache.apply(SLICES, Deleted(published("n", 7, "20Gi")))
    assert pool_totals(cache, ["n"]).gpus == 0


def unhealthy(slice_: Object, index: int, why: str = "xid-79") -> Object:
    device = slice_["spec"]["devices"][index]
    device["attributes"] = {"phase": {"string": "Unknown"}}
    device["taints"] = [{"key": HEALTH_TAINT, "value": why, "effect": "NoSchedule"}]
    return slice_


def test_nothing_on_an_unhealthy_card_is_free() -> None:
    cache = of_two_nodes()
    cache.apply(CLAIMS, Changed(claim("a", 3, vram="16Gi")))

    cache.apply(SLICES, Changed(unhealthy(published("n", 6, "40Gi", "40Gi"), 0)))
    idle = pool_totals(cache, ["n"])
    cache.apply(SLICES, Changed(unhealthy(published("n", 7, "40Gi", "40Gi"), 1)))
    used = pool_totals(cache, ["n"])
    cache.apply(SLICES, Changed(published("n", 8, "40Gi", "40Gi")))
    healthy = pool_totals(cache, ["n"])

    assert (idle.gpus, idle.unhealthy, idle.vram["virtual"]) == (2, 1, "80Gi")
    assert [one.vram["free"] for one in (idle, used, healthy)] == ["40Gi", "24Gi", "64Gi"]
    assert healthy.unhealthy == 0


def test_the_models_are_counted_the_most_frequent_first() -> None:
    cache = ObjectCache()
    for number, model in enumerate(("A100", "H100", "A100", "")):
        slice_ = published(f"n{number}", number + 1, *["40Gi"] * (number + 1))
        for device in slice_["spec"]["devices"] if model else ():
            device["attributes"] = {"model": {"string": model}}
        cache.apply(SLICES, Changed(slice_))

    assert pool_totals(cache, ["n0", "n1", "n2", "n3"]).models == "4 A100, 2 H100"
    assert pool_totals(cache, ["n3"]).models == ""


def test_many_models_are_cut_short() -> None:
    cache = ObjectCache()
    for number in range(10):
        slice_ = published(f"n{number}", number + 1, "40Gi")
        slice_["spec"]["devices"][0]["attributes"] = {"model": {"string": f"M{number}"}}
        cache.apply(SLICES, Changed(slice_))

    models = pool_totals(cache, [f"n{number}" for number in range(10)]).models
    assert (models[:10], models[-10:]) == ("1 M0, 1 M1", ", 2 others")
