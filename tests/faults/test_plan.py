"""A seed is a plan: the same one each time, and together they reach every fault."""

from tools.faults.plan import NATS, POOLS, REFUSED, TENANT, draw, possible

PROCESSES = ("allocator-1", "allocator-2", "apiserver", "claim-controller-1", NATS, "webhook")
PLANS = [draw(seed, PROCESSES) for seed in range(100)]


def test_the_same_seed_is_the_same_plan_in_whatever_order_processes_are_named() -> None:
    assert draw(7, PROCESSES) == draw(7, reversed(PROCESSES))
    assert draw(7, PROCESSES) != draw(8, PROCESSES)


def test_as_many_seeds_as_there_are_faults_have_each() -> None:
    every = possible(PROCESSES)
    assert len(every) == 2 * len(PROCESSES) + 1 + len(REFUSED)
    seen = {(f.kind, f.target) for plan in PLANS[: len(every)] for f in plan.faults}
    assert seen == set(every)


def test_a_process_is_harmed_once_at_a_time() -> None:
    for plan in PLANS:
        targets = [fault.target for fault in plan.faults]
        assert len(targets) == len(set(targets))


def test_many_faults_overlap() -> None:
    overlapping = [
        plan
        for plan in PLANS
        if any(
            second.at_s < first.at_s + first.for_s and not second.at_change
            for first, second in zip(plan.faults, plan.faults[1:], strict=False)
        )
    ]
    assert len(overlapping) > len(PLANS) / 3


def test_some_faults_begin_amid_the_work_on_a_claim() -> None:
    amid = [fault for plan in PLANS for fault in plan.faults if fault.at_change]
    assert len(amid) > len(PLANS) / 5
    assert f"or at change {amid[0].at_change} of a claim" in str(amid[0])


def test_pods_come_to_both_pools_and_some_leave_early_and_some_want_too_much() -> None:
    pods = [wish for plan in PLANS for wish in plan.pods]
    assert {wish.pool for wish in pods} == set(POOLS)
    assert any(wish.life_s is None for wish in pods)
    assert any(wish.life_s is not None for wish in pods)
    assert any(wish.gpus * wish.tflops >= 900 for wish in pods)


def test_a_plan_says_what_it_does_and_when() -> None:
    (line, *_) = PLANS[0].lines()
    fault = PLANS[0].faults[0]
    assert fault.target in line
    assert f"{fault.at_s:.2f} s" in line


def test_where_requests_are_refused_a_tenant_is_there_and_nothing_else_begins_so() -> None:
    for plan in PLANS:
        refused = [fault for fault in plan.faults if fault.kind == "refuse"]
        assert len(refused) < 2
        assert bool(refused) == any(wish.namespace == TENANT for wish in plan.pods)
        assert plan.final_fault is None or plan.final_fault.kind != "refuse"
