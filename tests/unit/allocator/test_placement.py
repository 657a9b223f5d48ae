"""What a pool's placement and a pod's own make of the same free cards."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from dray.api import names
from dray.api.claims import ClaimSpec, DeviceRequest
from dray.api.devices import OpaqueConfig
from dray.api.placement import Placement, overridden, placement_of
from dray.api.pods import Policy
from dray.kube.convert import policy_from
from dray.messages.facts import PolicyObserved

EXAMPLE = Path(__file__).parents[3] / "examples" / "05-placement"


def asks(count=1, capacity=None, **parameters):
    """Whole cards, or shares, and what else the pod says."""
    request = DeviceRequest("r", names.DEVICE_CLASS, count=count, capacity=capacity or {})
    fields = {"apiVersion": names.API_VERSION, "kind": names.LIMITS_KIND, **parameters}
    return ClaimSpec((request,), config=(OpaqueConfig(names.DRIVER, fields, ()),))


def share(**parameters):
    return asks(1, {"virtual_tflops": "10", "virtual_vram": "1Gi"}, **parameters)


def places(world, *uids):
    """How many pods each node and each card got."""
    nodes, cards = Counter(), Counter()
    for uid in uids:
        decision = world.decisions()[uid]
        nodes[decision.node] += 1
        cards[decision.claims[0].allocation.devices[0].id] += 1
    return sorted(nodes.values()), sorted(cards.values())


@pytest.mark.parametrize(
    ("file", "nodes_of_singles"), [("01-pool.yaml", [2]), ("04-spread.yaml", [1, 1])]
)
def test_spread_over_two_nodes_leaves_two_free_cards_and_no_node_for_two(
    make_world, file, nodes_of_singles
):
    """The second scenario of the scheduling guide's §1.2, as the example's policies have it."""
    policy = policy_from(next(yaml.safe_load_all((EXAMPLE / file).read_text())))
    singles = list(yaml.safe_load_all((EXAMPLE / "02-singles.yaml").read_text()))
    pair = yaml.safe_load((EXAMPLE / "03-pair.yaml").read_text())
    world = make_world().open(policy.placement)
    world.nodes(world.a_node("n0"), world.a_node("n1"), cards=2)
    for one in singles:
        world.submit(world.a_pod(one["metadata"]["name"]), asks())
    count = int(pair["metadata"]["annotations"][names.GPU_COUNT])
    world.submit(world.a_pod("pair"), asks(count))

    assert places(world, "first", "second")[0] == nodes_of_singles
    if nodes_of_singles == [2]:
        assert places(world, "pair") == ([1], [1])
    else:
        (reason,) = (one for one in world.waits("pair")[-1].reasons if one.kind == "count")
        assert (reason.what, reason.failed) == (
            "fewer than 2 matching devices with room on one node",
            2,
        )


@pytest.mark.parametrize(
    ("mode", "nodes", "cards"),
    [
        ("CompactFirst", [4], [4]),
        ("LowLoadFirst", [2, 2], [1, 1, 1, 1]),
        ("NodeCompactGPULowLoad", [4], [1, 1, 2]),
        ("", [4], [4]),
        ("FragmentationAware", [4], [4]),
        ("of a later version", [4], [4]),
    ],
)
def test_modes_fill_or_spread_nodes_and_cards(make_world, mode, nodes, cards):
    world = make_world().open(mode).nodes(*map(make_world.a_node, ("n0", "n1")), cards=3)
    for uid in "abcd":
        world.submit(world.a_pod(uid), share())

    assert places(world, *"abcd") == (nodes, cards)


@pytest.mark.parametrize(
    ("says", "nodes", "cards"),
    [
        ("LowLoadFirst", [2, 2], [1, 1, 1, 1]),
        ("gpu=spread", [4], [1, 1, 2]),
        ("node=spread", [2, 2], [2, 2]),
        ("what nobody can read", [4], [4]),
    ],
)
def test_a_pod_s_own_placement_comes_before_the_pool_s(make_world, says, nodes, cards):
    world = make_world().open("CompactFirst")
    world.nodes(*map(make_world.a_node, ("n0", "n1")), cards=3)
    for uid in "abcd":
        world.submit(world.a_pod(uid), share(placement=says))

    assert places(world, *"abcd") == (nodes, cards)


def test_a_changed_policy_is_heeded_from_then_on(make_world):
    world = make_world().open("CompactFirst")
    world.nodes(*map(make_world.a_node, ("n0", "n1")), cards=3)
    world.submit(world.a_pod("a"), share())
    spread = Policy("policy", "u", placement="CompactFirst", placement_node="spread", version=4)
    world.see(PolicyObserved(revision=world.next(), policy=spread))
    world.submit(world.a_pod("b"), share())

    assert places(world, "a", "b")[0] == [1, 1]


def test_weights_say_which_resource_makes_a_node_full(make_world):
    """One node has little cpu left, the other little memory on its card."""
    for weights, fullest in (
        ({"cpu": 1}, "busy"),
        ({"vram": 1}, "taken"),
        ({"cpu": 9, "vram": 1}, "busy"),
    ):
        world = make_world().open("CompactFirst", placement_weights=weights)
        world.nodes(world.a_node("taken"))
        world.submit(world.a_pod("old"), asks(1, {"virtual_tflops": "1", "virtual_vram": "30Gi"}))
        world.nodes(world.a_node("busy", used_cpu_milli=60_000))
        needs = world.a_pod("a").needs
        pod = world.a_pod("a", needs=type(needs)(cpu_milli=100))
        world.submit(pod, share())

        assert world.decisions()["a"].node == fullest


def test_weights_of_capacities_count_for_alternatives_too(make_world):
    """One card has little memory left, the other little compute."""
    for weights, fullest in (({"vram": 1}, "n1"), ({"tflops": 1}, "n2")):
        world = make_world().open("CompactFirst", placement_weights=weights)
        for node, capacity in (
            ("n1", {"virtual_tflops": "1", "virtual_vram": "30Gi"}),
            ("n2", {"virtual_tflops": "290", "virtual_vram": "15Gi"}),
        ):
            world.nodes(world.a_node(node))
            world.submit(world.a_pod(f"on-{node}"), asks(1, capacity))
            assert world.decisions()[f"on-{node}"].node == node
        some = asks(1, {"virtual_tflops": "1", "virtual_vram": "1Gi"}).requests[0]
        world.submit(
            world.a_pod("a"), ClaimSpec((DeviceRequest("either", "", first_available=(some,)),))
        )

        assert world.decisions()["a"].node == fullest


def test_what_is_not_asked_for_is_not_weighed(make_world):
    world = make_world().open("CompactFirst", placement_weights={"cpu": 1})
    world.nodes(world.a_node("taken"))
    world.submit(world.a_pod("old"), share())
    world.nodes(world.a_node("busy", used_cpu_milli=60_000))
    world.submit(world.a_pod("a"), share())

    assert world.decisions()["a"].node == "taken"


def test_a_policy_s_words_and_what_they_mean():
    assert placement_of() == placement_of("FragmentationAware") == Placement("", "")
    assert placement_of(node="spread") == Placement("spread", "binpack")
    assert placement_of("LowLoadFirst", gpu="binpack") == Placement("spread", "binpack")
    assert placement_of("CompactFirst", weights={"cpu": 1, "vram": 0}).weights == (("cpu", 1),)
    assert placement_of("FragmentationAware", weights={"cpu": 1}).is_aware
    assert placement_of(weights={"cpu": 1}) == Placement("binpack", "binpack", (("cpu", 1),))
    as_kubernetes = Placement(is_compatible=True)
    assert placement_of("KubernetesCompatible", weights={"cpu": 1}) == as_kubernetes
    assert not as_kubernetes.is_aware
    assert placement_of("KubernetesCompatible", gpu="spread") == Placement("binpack", "spread")
    assert placement_of("Unknown", "diagonal", "", None, "tree") == placement_of()


def test_what_a_pod_says_replaces_the_pool_s_words():
    pool = placement_of("LowLoadFirst", weights={"cpu": 1}, topology="hard")
    assert overridden(pool, "", "") == pool
    assert overridden(pool, "node=binpack", "").node == "binpack"
    assert overridden(pool, "CompactFirst", "soft").weights == pool.weights
    assert overridden(pool, "FragmentationAware", "none") == Placement("", "", (), "none")
    as_kubernetes = overridden(pool, "KubernetesCompatible", "")
    assert (as_kubernetes.is_compatible, as_kubernetes.weights) == (True, ())
    assert overridden(as_kubernetes, "gpu=spread", "") == Placement("binpack", "spread", (), "hard")
    assert overridden(placement_of(), "gpu=spread", "") == Placement("binpack", "spread")
