"""Where pods go."""

import pytest
from msgspec.structs import replace

from dray.api import names
from dray.api.claims import ClaimSpec, DeviceRequest, first_attempt
from dray.api.devices import Taint
from dray.api.pods import NodeExpression, PodClaim, PodNeeds, Pool
from dray.messages.facts import PodObserved, PoolObserved, SliceObserved


def test_a_pod_gets_a_share_of_a_card_and_the_record_says_what_it_knew(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p", request_id="r", traceparent="t"))

    record = world.logs["pool"][-1]
    decision = world.decisions()["p"]
    assert (record.facts_sequence, record.policy_version) == (len(world.facts), 3)
    assert record.now_unix_s == world.now_unix_s
    assert (decision.node, decision.binder, decision.request_id) == ("n1", "dray", "r")
    (claim,) = decision.claims
    assert claim.attempt == first_attempt(1)
    (device,) = claim.allocation.devices
    assert device.request == names.GPU_REQUEST
    assert device.consumed == {
        "tflops": "0",
        "vram": "0",
        "virtual_tflops": "100",
        "virtual_vram": "16Gi",
    }


def test_an_a100_of_40gi_holds_two_pods_of_100_tflops_and_16gi(world):
    world.nodes(world.a_node("n1"))
    for uid in ("a", "b", "c"):
        world.submit(world.a_pod(uid))

    assert list(world.decisions()) == ["a", "b"]
    (reason,) = world.waits("c")[0].reasons
    assert (reason.kind, reason.what) == ("capacity", "not enough free virtual_vram (16Gi asked)")
    assert (reason.failed, reason.of) == (1, 1)


def test_gated_pods_are_decided_too_and_left_to_the_kube_scheduler(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p", scheduler="default-scheduler", gated=True))
    assert world.decisions()["p"].binder == "kube-scheduler"


@pytest.mark.parametrize(
    "changes",
    [
        {"other_gates": True},
        {"deleting": True},
        {"node": "n1"},
        {"phase": "Succeeded"},
        {"claims": (PodClaim(names.CLAIM_REFERENCE, "", "template"),)},
        {"claims": (PodClaim(names.CLAIM_REFERENCE, "p-gpu"), PodClaim("other", "missing"))},
    ],
)
def test_a_pod_that_is_not_dray_s_to_decide_yet_is_left_alone(world, changes):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p", **changes))
    assert not world.decisions()
    assert not world.waits("p")


def test_nothing_is_allocated_where_the_pool_belongs_to_the_kube_scheduler(world):
    world.nodes(world.a_node("n1", owner="kube-scheduler"))
    world.submit(world.a_pod("p"))
    assert not world.decisions()
    world.see(PoolObserved(revision=9, pool=Pool("pool", "u", owner="kube-scheduler")))
    world.submit(world.a_pod("q"))
    assert not world.waits("q")


@pytest.mark.parametrize(("mode", "cards_used"), [("CompactFirst", 1), ("LowLoadFirst", 2)])
def test_the_policy_packs_or_spreads(make_world, mode, cards_used):
    world = make_world().open(mode).nodes(make_world.a_node("n1"), cards=4)
    for uid in ("a", "b"):
        world.submit(world.a_pod(uid))
    used = {d.claims[0].allocation.devices[0].id for d in world.decisions().values()}
    assert len(used) == cards_used


@pytest.mark.parametrize(("mode", "nodes_used"), [("CompactFirst", 1), ("LowLoadFirst", 3)])
def test_the_policy_chooses_the_node_first(make_world, mode, nodes_used):
    world = make_world().open(mode)
    world.nodes(*(world.a_node(f"n{i}") for i in range(3)), cards=2)
    for uid in ("a", "b", "c"):
        world.submit(world.a_pod(uid))
    assert len({d.node for d in world.decisions().values()}) == nodes_used


def test_ties_depend_on_the_uids_of_nodes_and_on_nothing_else(make_world):
    """Not on names, on the order of arrival, or on the claim: who replays needs none of them."""

    def chosen(names: dict[str, str]) -> str:
        world = make_world().open()
        world.nodes(*(world.a_node(name, uid=uid) for uid, name in names.items()))
        world.submit(world.a_pod("p"))
        node = world.decisions()["p"].node
        return next(uid for uid, name in names.items() if name == node)

    uids = [f"uid-{i}" for i in range(4)]
    ascending = {uid: f"n{i}" for i, uid in enumerate(uids)}
    renamed = {uid: f"n{9 - i}" for i, uid in enumerate(uids)}
    arriving_late = dict(reversed(ascending.items()))
    assert chosen(ascending) == chosen(renamed) == chosen(arriving_late)
    assert len({chosen({f"{salt}-{uid}": f"n{uid}" for uid in uids})[-1] for salt in "abcdef"}) > 1


def test_count_asks_for_distinct_cards_of_one_node(world):
    world.nodes(world.a_node("n1"), world.a_node("n2"), cards=2)
    world.submit(world.a_pod("p"), world.ask("10", "1Gi", count=2))
    world.submit(world.a_pod("q"), world.ask("10", "1Gi", count=3))
    devices = world.decisions()["p"].claims[0].allocation.devices
    assert len({device.id for device in devices}) == 2
    assert len({device.id.pool for device in devices}) == 1
    assert [reason.kind for reason in world.waits("q")[0].reasons] == ["count"]


NEEDS = [
    (PodNeeds(cpu_milli=65_000), "not enough free cpu (65000m asked)"),
    (PodNeeds(memory_bytes=2**39), "not enough free memory ("),
    (PodNeeds(node_selector={"zone": "b"}), "node selector"),
    (PodNeeds(node_terms=((NodeExpression("cores", "Lt", ("8",)),),)), "node affinity"),
    (
        PodNeeds(node_terms=((NodeExpression("metadata.name", "In", ("n2",), is_field=True),),)),
        "node affinity",
    ),
]


@pytest.mark.parametrize(("needs", "what"), NEEDS)
def test_node_predicates_keep_pods_away_and_are_named(world, needs, what):
    world.nodes(world.a_node("n1", labels={"zone": "a", "cores": "64"}))
    world.submit(world.a_pod("p", needs=needs))
    (reason,) = world.waits("p")[0].reasons
    assert reason.kind == "node"
    assert reason.what.startswith(what)


def test_affinity_terms_are_alternatives_of_expressions_that_all_hold(world):
    world.nodes(world.a_node("n1", labels={"zone": "a", "cores": "64"}))
    terms = (
        (NodeExpression("zone", "In", ("b",)),),
        (NodeExpression("cores", "Gt", ("32",)), NodeExpression("zone", "NotIn", ("b",))),
    )
    world.submit(world.a_pod("p", needs=PodNeeds(node_terms=terms)))
    assert "p" in world.decisions()


@pytest.mark.parametrize(
    "changes", [{"unschedulable": True}, {"ready": False}, {"taints": (Taint("t"),)}, {"pods": 0}]
)
def test_nodes_that_take_no_pods_get_none(world, changes):
    world.nodes(world.a_node("n1", **changes))
    world.submit(world.a_pod("p"))
    assert not world.decisions()
    assert [reason.unit for reason in world.waits("p")[0].reasons] == ["node"]


def test_dray_binds_on_dedicated_nodes_only_once_the_taint_is_there(world):
    """Until then kube-scheduler may bind there what no fact has counted."""
    pool = Pool("pool", "u", template="policy", dedicated=True)
    world.see(PoolObserved(revision=2, pool=pool))
    world.nodes(world.a_node("n1"), cards=2)
    world.submit(world.a_pod("p"))
    assert not world.decisions()
    (reason,) = world.waits("p")[0].reasons
    assert reason.what == "node taint tensor-fusion.ai/dedicated=pool:NoSchedule is missing"
    world.submit(world.a_pod("gated", scheduler="default-scheduler"))
    assert list(world.decisions()) == ["gated"]
    world.node(world.a_node("n1", dedicated=True))
    assert world.decisions()["p"].node == "n1"


def test_what_waits_in_a_pool_that_is_shared_again_does_not_wait_for_its_taint(world):
    pool = Pool("pool", "u", template="policy", dedicated=True)
    world.see(PoolObserved(revision=2, pool=pool))
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"))
    assert not world.decisions()
    world.see(PoolObserved(revision=3, pool=replace(pool, dedicated=False)))
    assert world.decisions()["p"].node == "n1"


def test_cpu_of_decided_pods_counts_until_the_node_s_sum_contains_them(world):
    small = world.a_node("n1", cpu_milli=1000)
    world.nodes(small, cards=2)
    needs = PodNeeds(cpu_milli=600)
    world.submit(world.a_pod("a", needs=needs))
    world.submit(world.a_pod("b", needs=needs))
    assert list(world.decisions()) == ["a"]
    world.commit(world.decisions()["a"])
    world.tick()
    assert ("claim-a", "committed", "") in world.released()
    world.node(replace(small, used_pods=1, used_cpu_milli=600), counted=("a",))
    assert list(world.decisions()) == ["a"]
    world.node(replace(small, used_pods=1, used_cpu_milli=300), counted=("a",))
    assert "b" in world.decisions()


def test_all_open_claims_go_where_the_allocated_one_is(world):
    world.nodes(world.a_node("n1"), world.a_node("n2"), cards=2)
    done = world.a_claim("first", world.ask())
    world.submit(world.a_pod("first"))
    node = world.decisions()["first"].node
    allocation = world.decisions()["first"].claims[0].allocation
    references = (PodClaim("a", "done"), PodClaim(names.CLAIM_REFERENCE, "open"))
    world.claim(replace(done, uid="c1", name="done", pod_uid="p", allocation=allocation))
    world.claim(replace(done, uid="c2", name="open", pod_uid="p"))
    world.see(PodObserved(revision=world.next(), pod=world.a_pod("p", claims=references)))
    assert world.decisions()["p"].node == node
    assert [claim.uid for claim in world.decisions()["p"].claims] == ["c2"]


def test_a_claim_that_states_no_capacity_takes_the_whole_card(world):
    world.nodes(world.a_node("n1"), cards=2)
    world.submit(world.a_pod("a"), ClaimSpec((DeviceRequest("r", names.DEVICE_CLASS),)))
    world.submit(world.a_pod("b"))
    first, second = (world.decisions()[uid].claims[0].allocation.devices[0] for uid in "ab")
    assert first.consumed["virtual_vram"] == "40Gi"
    assert first.id != second.id


def test_a_lowered_budget_admits_nothing_more_and_is_not_a_fault(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("a"))
    lowered = world.a_slice("n1", [world.a_card("n1-gpu0", vram="8Gi")], generation=2)
    world.see(SliceObserved(revision=9, slice=lowered))
    world.submit(world.a_pod("b"), world.ask("1", "1Gi"))
    assert list(world.decisions()) == ["a"]
    assert not world.oversold()
