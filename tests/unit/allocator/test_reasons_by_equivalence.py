"""Reasons found by kinds of cards are those that a look at every card and node gives."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.allocator.reference_reasons import Plain

from dray.api import names
from dray.api.claims import ClaimSpec, Constraint, DeviceRequest, DeviceToleration
from dray.api.devices import Capacity, Taint
from dray.api.pods import NodeExpression, PodNeeds
from dray.messages.facts import InventoryObserved, SliceObserved
from dray.reasons import Nearest
from dray_allocator.explain.pods import explain_pod
from dray_allocator.placement.fast_path.table_choice import choose
from dray_allocator.placement.pod_request import PodRequest, wanted

OF = f'device.attributes["{names.DRIVER}"]'
SELECTORS = (
    (),
    (f'{OF}.model == "A100"',),
    (f'{OF}.model == "H100" && {OF}.slot > 1',),
    (f'{OF}.odd == "yes"', f'{OF}.model == "H100"'),
    (f'{OF}.uuid == "n1-2"',),
    ('device.attributes.exists(d, d == "none")',),
    ("no selector",),
)
NODES = ("n0", "n1", "n2", "n3", "n4")


def spec(random: Random) -> ClaimSpec:
    requests = tuple(
        DeviceRequest(
            f"r{number}",
            names.DEVICE_CLASS,
            random.choice(SELECTORS),
            count=random.choice((1, 1, 2, 5)),
            capacity=random.choice(
                ({}, {"virtual_tflops": "250", "virtual_vram": "16Gi"}, {"virtual_vram": "60G"})
            ),
            tolerations=random.choice(((), (DeviceToleration("unhealthy", "Exists"),))),
        )
        for number in range(random.choice((1, 1, 2)))
    )
    rules = random.choice(((), (Constraint(match_attribute=names.qualified("model")),)))
    return ClaimSpec(requests, rules)


def needs(random: Random) -> PodNeeds:
    zone = NodeExpression("zone", "In", ("a",))
    return PodNeeds(
        cpu_milli=random.choice((0, 3_000)),
        memory_bytes=random.choice((0, 2**30, 2**39)),
        node_selector=random.choice(({}, {}, {"zone": "a"})),
        node_terms=random.choice(((), ((zone,),))),
        resources=random.choice(({}, {}, {"example.com/thing": 2})),
    )


def fill(world, random: Random) -> None:
    """Nodes, cards and what runs on them, by chance."""
    for name in NODES:
        cards = []
        for index in range(random.choice((0, 2, 4))):
            model, vram = random.choice((("A100", "40Gi"), ("H100", "80G")))
            card = world.a_card(f"{name}-{index}", model=model, vram=vram)
            odd = {"odd": "yes"} if random.random() < 0.2 else {}
            taints = (
                (Taint("unhealthy", "", "NoSchedule"),) if random.random() < 0.3 else card.taints
            )
            absurd = {"virtual_vram": Capacity("nonsense")} if random.random() < 0.1 else {}
            cards.append(
                replace(
                    card,
                    attributes={**card.attributes, "slot": index, **odd},
                    capacity={**card.capacity, **absurd},
                    taints=taints,
                    allow_multiple_allocations=random.random() > 0.2,
                )
            )
        made = world.a_slice(name, cards, generation=world.next())
        world.see(SliceObserved(revision=world.next(), slice=made))
        world.node(
            world.a_node(
                name,
                cpu_milli=random.choice((1_000, 4_000)),
                pods=random.choice((1, 110)),
                labels={"zone": random.choice("ab")},
                resources={"example.com/thing": random.choice((0, 1, 4))},
                taints=random.choice(((), (Taint("t"),))),
                ready=random.random() > 0.1,
            )
        )
        unhealthy_names = tuple(one.name for one in cards if random.random() < 0.1)
        world.see(
            InventoryObserved(
                revision=world.next(), node=name, driver=names.DRIVER, unhealthy=unhealthy_names
            )
        )
    for number in range(random.randrange(12)):
        world.submit(world.a_pod(f"p{number}"), spec(random))


def asking(world, random: Random) -> PodRequest | None:
    pod, asked = world.a_pod("asking", needs=needs(random)), spec(random)
    world.submit(pod, asked)
    found = wanted(world.state, "pool", pod) if world.state.is_decidable(pod) else ()
    return found if isinstance(found, PodRequest) else None


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_they_are_what_a_look_at_every_card_and_node_gives(make_world, seed):
    random = Random(seed)
    world = make_world().open()
    fill(world, random)
    want = asking(world, random)
    state, domain = world.state, world.state.domains["pool"]
    if want is None or choose(state, domain, want) is not None:
        return
    found = list(explain_pod(state, domain, want))
    plain = Plain(state, want).reasons()
    if not state.tables.of("pool").cards:
        found = [reason for reason in found if reason.what != "no devices"]
    assert found == plain[:24]


def test_the_nearest_miss_is_shown_with_what_it_has(world):
    world.nodes(world.a_node("n1"), world.a_node("n2"))
    world.submit(world.a_pod("a"), world.ask(vram="30Gi"))
    world.submit(world.a_pod("b"), world.ask(vram="20Gi"))
    world.submit(world.a_pod("c"), world.ask(vram="39Gi"))
    (reason,) = world.waits("c")[-1].reasons
    assert reason.nearest is not None
    assert reason.nearest.seen == "20Gi"
    held = world.decisions()["b"].node
    assert reason.nearest.where == f"{held}/{held}-gpu0"
    assert str(reason) == (
        "not enough free virtual_vram (39Gi asked): 2 of 2 devices; "
        f"nearest: {held}/{held}-gpu0 has 20Gi"
    )


def test_the_nearest_miss_of_a_clause_is_the_card_with_the_fewest_false_ones(world):
    world.nodes(world.a_node("n1"), world.a_node("n2"), model="A100", vram="40Gi")
    world.nodes(world.a_node("n3"), model="A100", vram="80Gi")
    clauses = (
        f'{OF}.model == "H100"',
        f'device.capacity["{names.DRIVER}"].vram.isGreaterThan(quantity("60Gi"))',
    )
    world.submit(world.a_pod("p"), world.ask(selectors=clauses))
    model, vram = world.waits("p")[-1].reasons
    assert model.nearest == Nearest("n3/n3-gpu0", '"A100"')
    assert (vram.failed, vram.nearest.seen) == (2, "40Gi")


def test_the_nearest_node_is_the_one_with_most_left(world):
    world.nodes(world.a_node("n1", cpu_milli=1_000), world.a_node("n2", cpu_milli=2_000))
    world.submit(world.a_pod("p", needs=PodNeeds(cpu_milli=3_000)))
    (reason,) = world.waits("p")[-1].reasons
    assert (reason.what, reason.nearest) == (
        "not enough free cpu (3000m asked)",
        Nearest("n2", "2000m"),
    )
