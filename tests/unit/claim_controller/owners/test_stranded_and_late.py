"""Pods that wait in a pool that kube-scheduler now owns, and allocations that came too late."""

import pytest
from tests.unit.claim_controller.owners.world import NOW, World, claim, pod

from dray.api.names import OWNER_DRAY, OWNER_KUBE_SCHEDULER
from dray.kube.convert import time_to
from dray.kube.ports import CLAIMS, PODS
from dray_claim_controller.owners.decisions import late_allocations, stranded


class TestPodsThatWait:
    """Those of a pool that kube-scheduler now owns."""

    def test_pods_lose_their_gate_or_get_an_event(self, world: World) -> None:
        world.put(PODS, pod("gated", gated=True))
        world.put(PODS, pod("dedicated", scheduler="tensor-fusion-scheduler"))
        world.put(PODS, pod("theirs"))
        world.give(OWNER_KUBE_SCHEDULER, owner=OWNER_KUBE_SCHEDULER)

        found = stranded(world.cache)
        assert (found.gated, found.unbindable) == (("gated",), ("dedicated",))

    @pytest.mark.parametrize(
        ("spec", "by_now"),
        [
            (OWNER_DRAY, OWNER_DRAY),
            (OWNER_KUBE_SCHEDULER, OWNER_DRAY),
            (OWNER_DRAY, OWNER_KUBE_SCHEDULER),
        ],
    )
    def test_keep_waiting_where_it_does_not_have_the_pool(
        self, world: World, spec: str, by_now: str
    ) -> None:
        world.put(PODS, pod("gated", gated=True))
        world.give(spec, owner=by_now)

        assert stranded(world.cache).gated == ()

    def test_with_all_their_devices_lack_the_last_step_only(self, world: World) -> None:
        world.put(CLAIMS, claim("gated-claim", of="gated", device="gpu-0", decision=1_000_001))
        world.put(PODS, pod("gated", gated=True))
        world.give(OWNER_KUBE_SCHEDULER, owner=OWNER_KUBE_SCHEDULER)

        assert stranded(world.cache).gated == ()


class TestAllocationsThatCameLate:
    """On a device that dray had taken back at NOW."""

    def sales(self, world: World) -> list[tuple[str, tuple[str, ...]]]:
        return [(one.claim, one.pods) for one in late_allocations(world.cache, "n1", NOW)]

    def test_the_later_one_goes(self, world: World) -> None:
        world.put(CLAIMS, claim("ours", of="ours", device="gpu-0", at=NOW + 1, decision=1_000_001))
        world.put(CLAIMS, claim("late", of="late", device="gpu-0", at=NOW + 2))
        for name in ("ours", "late"):
            world.put(PODS, pod(name))

        assert self.sales(world) == [("ns/late", ("late",))]

    def test_no_more_go_than_have_to(self, world: World) -> None:
        world.put(CLAIMS, claim("ours", of="ours", device="gpu-0", at=NOW + 1, decision=1_000_001))
        for number in (1, 2):
            late = claim(
                f"late-{number}", of=f"late-{number}", device="gpu-0", tflops="30", at=NOW + number
            )
            world.put(CLAIMS, late)
            world.put(PODS, pod(f"late-{number}"))

        assert self.sales(world) == [("ns/late-2", ("late-2",))]

    def test_one_that_is_going_is_enough(self, world: World) -> None:
        world.put(CLAIMS, claim("ours", of="ours", device="gpu-0", at=NOW + 1, decision=1_000_001))
        world.put(CLAIMS, claim("late", of="late", device="gpu-0", at=NOW + 2))
        going = pod("late")
        going["metadata"]["deletionTimestamp"] = time_to(NOW + 3)
        world.put(PODS, going)

        assert self.sales(world) == []

    @pytest.mark.parametrize("by_dray", [True, False])
    def test_a_budget_that_was_lowered_is_not_a_double_sale(
        self, world: World, by_dray: bool
    ) -> None:
        """What kube-scheduler allocated in its time, and what dray allocated, stays."""
        decision = 1_000_001 if by_dray else 0
        for name in ("a", "b"):
            held = claim(name, of=name, device="gpu-0", at=NOW - 5, decision=decision)
            world.put(CLAIMS, held)
            world.put(PODS, pod(name))

        assert self.sales(world) == []

    def test_what_fits_may_stay(self, world: World) -> None:
        world.put(CLAIMS, claim("ours", of="ours", device="gpu-0", at=NOW + 1, decision=1_000_001))
        world.put(CLAIMS, claim("late", of="late", device="gpu-0", tflops="40", at=NOW + 2))
        world.put(PODS, pod("late"))

        assert self.sales(world) == []
