"""Whole cards, percent of a card and a preference, where devices are chosen."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dray.api import names
from dray.api.claims import ClaimSpec, DeviceRequest
from dray.api.devices import Capacity, OpaqueConfig, RequestPolicy
from dray.api.preference import parse_preference
from dray.api.quantities import parse_quantity
from dray.messages.facts import SliceObserved
from dray_allocator.devices.ordered_search import worst_first
from dray_allocator.devices.percentages import amounts
from dray_allocator.scoring.preference import card_key

HALF = {"virtual_tflops": 50 * 10**9}


def asks(count=1, requests=(), capacity=None, **parameters):
    """A derived claim with the driver's own configuration."""
    request = DeviceRequest(
        names.GPU_REQUEST, names.DEVICE_CLASS, capacity=capacity or {}, count=count
    )
    fields = {"apiVersion": names.API_VERSION, "kind": names.LIMITS_KIND, **parameters}
    return ClaimSpec((request,), config=(OpaqueConfig(names.DRIVER, fields, tuple(requests)),))


def quarter():
    return asks(computePercentRequest="25", vramPercentRequest="25")


def fleet(world, **models):
    """Nodes named after the one model of their card; models by tflops and vram."""
    for name, (tflops, vram) in models.items():
        world.nodes(world.a_node(name.lower()), model=name, tflops=tflops, vram=vram)
    return world


THREE = {"T4": ("65", "16Gi"), "H100": ("989", "80Gi"), "A100": ("312", "80Gi")}


def test_four_quarters_fill_a_card_of_whatever_size(world):
    fleet(world, T4=("65", "16Gi"))
    for uid in ("a", "b", "c", "d", "e"):
        world.submit(world.a_pod(uid), quarter())

    assert list(world.decisions()) == ["a", "b", "c", "d"]
    (device,) = world.decisions()["a"].claims[0].allocation.devices
    assert device.consumed["virtual_tflops"] == "16250m"
    assert device.consumed["virtual_vram"] == "4Gi"


def test_percent_is_of_the_physical_card_and_taken_of_the_budget(world):
    device = world.a_card("gpu", tflops="100")
    budget = Capacity("200", RequestPolicy(default="200", minimum="1"))
    oversold = replace(device, capacity={**device.capacity, "virtual_tflops": budget})

    assert amounts(HALF, {}, oversold.capacity) == {"virtual_tflops": "50"}


def test_what_a_request_states_is_not_replaced_by_a_percentage(world):
    stated = {"virtual_tflops": "7"}

    assert amounts(HALF, stated, world.a_card("gpu").capacity) == stated


@given(
    tflops=st.decimals(1, 5000, places=3),
    vram=st.integers(1, 2**40),
    percent=st.decimals(1, 100, places=2),
)
def test_as_many_shares_fit_as_the_percentage_promises(tflops, vram, percent):
    share = int(percent * 10**9)
    published = {
        name: Capacity(str(amount))
        for name, amount in (
            ("tflops", tflops),
            ("virtual_tflops", tflops),
            ("vram", vram),
            ("virtual_vram", vram),
        )
    }
    taken = amounts({"virtual_tflops": share, "virtual_vram": share}, {}, published)

    promised = 100 * 10**9 // share
    for name, text in taken.items():
        assert parse_quantity(text).nano * promised <= parse_quantity(published[name].value).nano


def test_pods_that_ask_for_other_percentages_do_not_share_a_verdict(world):
    fleet(world, T4=("65", "16Gi"))
    world.submit(world.a_pod("most"), asks(computePercentRequest="80", vramPercentRequest="80"))
    world.submit(world.a_pod("half"), asks(computePercentRequest="50", vramPercentRequest="50"))
    world.submit(world.a_pod("tenth"), asks(computePercentRequest="10", vramPercentRequest="10"))

    assert list(world.decisions()) == ["most", "tenth"]
    (reason, _) = world.waits("half")[0].reasons
    assert reason.what == "not enough free virtual_tflops (50 % of tflops asked)"


def _form(kind, number):
    kinds = {
        "amount": {"capacity": {"virtual_tflops": str(10 * number), "virtual_vram": "2Gi"}},
        "percent": {"computePercentRequest": str(9 * number), "vramPercentRequest": "7.5"},
        "whole": {"count": 1 + number % 2},
        "preferring": {"computePercentRequest": "5", "prefer": "tflops desc | vram asc"},
    }
    return asks(**kinds[kind])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["amount", "percent", "whole", "preferring"]), st.integers(1, 11)
        ),
        max_size=14,
    )
)
@settings(max_examples=40)
def test_whatever_the_forms_no_card_is_sold_beyond_its_budget(make_world, forms):
    world = fleet(make_world().open(), **THREE)
    for number, (kind, size) in enumerate(forms):
        world.submit(world.a_pod(f"p{number}"), _form(kind, size))

    used = defaultdict(lambda: defaultdict(int))
    holders = defaultdict(list)
    for uid, decision in world.decisions().items():
        for device in decision.claims[0].allocation.devices:
            holders[device.id].append(uid)
            for name, amount in device.consumed.items():
                used[device.id][name] += parse_quantity(amount).nano
    for device, amounts_used in used.items():
        card = world.state.published.cards.get(device)
        assert all(nano <= card.shape.totals[name] for name, nano in amounts_used.items())
        alone = [uid for uid in holders[device] if forms[int(uid[1:])][0] == "whole"]
        assert not alone or len(holders[device]) == 1
    assert world.oversold() == []


@pytest.mark.parametrize("text", ["many", "0", "101", "-1"])
def test_an_invalid_percentage_is_reported_and_nothing_is_allocated(world, text):
    fleet(world, **THREE)
    world.submit(world.a_pod("p"), asks(computePercentRequest=text))

    assert not world.decisions()
    assert "config computePercentRequest" in world.waits("p")[0].reasons[0].what


def test_a_whole_card_is_unused_and_not_shared(world):
    world.nodes(world.a_node("n1"), cards=2)
    world.submit(world.a_pod("share"))
    world.submit(world.a_pod("whole"), asks())
    world.submit(world.a_pod("second"), asks())
    world.submit(world.a_pod("other"))

    assert list(world.decisions()) == ["share", "whole", "other"]
    cards = {uid: one.claims[0].allocation.devices[0].id for uid, one in world.decisions().items()}
    assert cards["share"] == cards["other"] != cards["whole"]


@pytest.mark.parametrize(
    ("prefer", "order"),
    [
        ("tflops desc", ["h100", "a100", "t4"]),
        ("tflops asc", ["t4", "a100", "h100"]),
        ("vram desc | tflops asc", ["a100", "h100", "t4"]),
        ("vram asc", ["t4"]),
        ("A100,T4", ["a100", "t4", "h100"]),
        ("B200 | tflops desc", ["h100", "a100", "t4"]),
    ],
)
@pytest.mark.parametrize("mode", ["CompactFirst", "LowLoadFirst"])
def test_the_preferred_card_of_all_nodes_comes_first(make_world, prefer, order, mode):
    world = fleet(make_world().open(mode), **THREE)
    for number in range(len(order)):
        world.submit(world.a_pod(f"p{number}"), asks(prefer=prefer))

    assert [one.node for one in world.decisions().values()] == order


def test_a_preference_refuses_no_card(world):
    fleet(world, T4=("65", "16Gi"))
    world.submit(world.a_pod("p"), asks(prefer="H100 | tflops desc"))

    assert world.decisions()["p"].node == "t4"


def test_of_equal_cards_the_placement_takes_its_own(make_world):
    for mode, same in (("CompactFirst", True), ("LowLoadFirst", False)):
        world = make_world().open(mode)
        world.nodes(world.a_node("n1"), world.a_node("n2"))
        for uid in ("a", "b"):
            amount = {"virtual_tflops": "10", "virtual_vram": "1Gi"}
            world.submit(world.a_pod(uid), asks(prefer="tflops desc", capacity=amount))

        nodes = [one.node for one in world.decisions().values()]
        assert (nodes[0] == nodes[1]) is same


@pytest.mark.parametrize(
    ("prefer", "card"), [("vram asc", "gpu-0"), ("tflops desc", "gpu-1"), ("A100", "gpu-2")]
)
def test_within_a_node_too_the_preferred_card_comes_first(world, prefer, card):
    cards = [
        world.a_card(f"gpu-{number}", model=model, tflops=tflops, vram=vram)
        for number, (model, (tflops, vram)) in enumerate(THREE.items())
    ]
    world.see(SliceObserved(revision=world.next(), slice=world.a_slice("n1", cards)))
    world.node(world.a_node("n1"))
    world.submit(world.a_pod("p"), asks(prefer=prefer))

    assert world.decisions()["p"].claims[0].allocation.devices[0].id.device == card


def test_of_several_cards_the_weakest_counts(world):
    strongest = parse_preference("tflops desc")
    strong, middle, weak = (
        card_key(strongest, world.a_card("gpu", tflops=tflops)) for tflops in ("989", "312", "65")
    )

    assert worst_first([middle, middle]) < worst_first([strong, weak])
    assert worst_first([strong, middle]) < worst_first([middle, middle])


def test_a_card_that_does_not_say_comes_last(world):
    strongest = parse_preference("tflops desc")
    silent = replace(world.a_card("gpu"), capacity={})

    assert card_key(strongest, world.a_card("gpu", tflops="1")) < card_key(strongest, silent)
    weakest = parse_preference("tflops asc")
    assert card_key(weakest, world.a_card("gpu", tflops="9999")) < card_key(weakest, silent)
