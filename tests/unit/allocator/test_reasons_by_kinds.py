"""Reasons found by kinds of cards are those that a look at every card and node gives.

The plain look below asks every card and every node by itself; ties go by the cards' identities and
the nodes' uids, as everywhere.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dray.domain import names
from dray.domain.claims import ClaimSpec, Constraint, DeviceRequest
from dray.domain.devices import Capacity, Taint, Toleration
from dray.domain.pods import NodeExpression, PodNeeds
from dray.domain.quantities import Quantity, parse_quantity
from dray.messages.facts import InventoryObserved, SliceObserved
from dray.reasons import Nearest, Reason
from dray_allocator.fit.search import STEPS, Search, Tries, has_room, untolerated
from dray_allocator.node.predicates import failures
from dray_allocator.placement.ask import Wanted, wanted
from dray_allocator.placement.choose import candidates, choose
from dray_allocator.placement.explain import explain
from dray_allocator.placement.modes import tie
from dray_allocator.placement.on_nodes import left_of

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
ORDER = ("unsupported", "taint", "capacity", "in-use")


@pytest.fixture(scope="module")
def make(make_world):
    return make_world


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
            tolerations=random.choice(((), (Toleration("ill", "Exists"),))),
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
            taints = (Taint("ill", "", "NoSchedule"),) if random.random() < 0.3 else card.taints
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
        ill = tuple(one.name for one in cards if random.random() < 0.1)
        world.see(
            InventoryObserved(revision=world.next(), node=name, driver=names.DRIVER, unhealthy=ill)
        )
    for number in range(random.randrange(12)):
        world.submit(world.a_pod(f"p{number}"), spec(random))


def asking(world, random: Random) -> Wanted | None:
    pod, asked = world.a_pod("asking", needs=needs(random)), spec(random)
    world.submit(pod, asked)
    found = wanted(world.state, "pool", pod) if world.state.is_decidable(pod) else ()
    return found if isinstance(found, Wanted) else None


def least(places):
    """The card with the least tie."""
    return min(places, key=lambda card: tie(card.name))


def named(card) -> str:
    return f"{card.id.pool}/{card.id.device}"


class Plain:
    """Every card and node asked by itself."""

    def __init__(self, state, want: Wanted) -> None:
        self.state, self.want = state, want
        self.nodes = state.facts.served_nodes("pool")
        self.cards = [card for node in self.nodes for card in state.fleet.of(node).cards]

    def reasons(self) -> list[Reason]:
        found: dict[Reason, None] = {}
        unhealthy = sum(self.state.fleet.ill.get(node, 0) for node in self.nodes)
        if unhealthy:
            total = len(self.cards) + unhealthy
            found[Reason("in-use", "healthy", unhealthy, total)] = None
        for ask in self.want.asks:
            found.update(dict.fromkeys((*self._clauses(ask), *self._free(ask))))
        return [*found, *self._of_nodes(), *self._together()]

    def _results(self, ask, card):
        return [self.state.selectors.explain(text, card) for text in ask.selectors]

    def _failing(self, ask, card):
        """Kind, text and result of each clause that fails on a card."""
        for results in self._results(ask, card):
            no = [one for one in results if one.value is False]
            unsaid = [] if no else [one for one in results if one.value is None]
            yield from ((("clause", one.text), one) for one in no)
            yield from ((("clause-error", one.text), one) for one in unsaid)

    def _clauses(self, ask):
        order = [
            one.text for card in self.cards[:1] for all_ in self._results(ask, card) for one in all_
        ]
        failing = {card.name: dict(self._failing(ask, card)) for card in self.cards}
        for kind in ("clause", "clause-error"):
            for text in dict.fromkeys(order):
                where = [card for card in self.cards if (kind, text) in failing[card.name]]
                if where:
                    fewest = min(len(failing[card.name]) for card in where)
                    near = least(card for card in where if len(failing[card.name]) == fewest)
                    result = failing[near.name][kind, text]
                    yield Reason(
                        kind,
                        text,
                        len(where),
                        len(self.cards),
                        detail=result.error,
                        nearest=Nearest(named(near), seen(result)),
                    )

    def _free(self, ask):
        matching = [one for one in self.cards if self.state.selectors.matches(ask.selectors, one)]
        where: dict = {}
        for card in matching:
            for cause in self._causes(ask, card):
                where.setdefault(cause, []).append(card)
        for cause in sorted(where, key=lambda one: (ORDER.index(one[0]), *one[1:])):
            kind, what, detail = cause
            near = self._nearest(ask, cause, where[cause])
            yield Reason(kind, what, len(where[cause]), len(matching), "device", detail, near)

    def _nearest(self, ask, cause, cards):
        kind, what, _ = cause
        if kind == "in-use":
            return None
        if what.startswith("free "):
            key = what.split()[1]
            most = max(self._left(card, key) for card in cards)
            card = least(one for one in cards if self._left(one, key) == most)
            binary = parse_quantity(card.device.capacity[key].value).binary
            return Nearest(named(card), str(Quantity(max(0, most), binary=binary)))
        if kind == "capacity":
            keys = sorted(ask.request.capacity)
            totals = {one.name: [one.totals.get(key, -1) for key in keys] for one in cards}
            most = max(totals.values())
            card = least(one for one in cards if totals[one.name] == most)
            has = card.device.capacity
            told = (f"{key} {has[key].value}" if key in has else f"no {key}" for key in keys)
            return Nearest(named(card), ", ".join(told))
        return Nearest(named(least(cards)))

    def _left(self, card, key) -> int:
        return card.totals[key] - self.state.ledger.of(card.id).used.get(key, 0)

    def _causes(self, ask, card):
        if card.fault:
            yield "unsupported", "can be read", card.fault
            return
        taint = untolerated(ask.request, card)
        if taint is not None:
            what = f"toleration of device taint {taint.key}={taint.value}:{taint.effect}"
            yield "taint", what, ""
        consumed = ask.of(card)
        if consumed is None:
            asked = ", ".join(f"{key} {one}" for key, one in sorted(ask.request.capacity.items()))
            detail = "more than the device has, or not a capacity of it"
            yield "capacity", f"publishes {asked}", detail
        elif not has_room(self.state.ledger, card, consumed, ()):
            if self.state.ledger.of(card.id).whole or not card.device.allow_multiple_allocations:
                yield "in-use", "not in use", ""
                return
            for key, amount in consumed.nano.items():
                if amount > self._left(card, key):
                    yield "capacity", f"free {key} ≥ {consumed.text[key]}", ""

    def _of_nodes(self) -> list[Reason]:
        state, want = self.state, self.want
        where: dict = {}
        for name in self.nodes:
            node, held = state.facts.nodes[name].node, state.holds.on(name)
            failing = list(failures(want.pod.needs, node, held, alone=want.alone))
            for what in failing:
                left, has = left_of(what, node, held)
                rank = (-left, len(failing), tie(node.uid))
                where.setdefault(what, []).append((rank, Nearest(name, has)))
        return [
            Reason("node", what, len(some), len(self.nodes), "node", nearest=min(some)[1])
            for what, some in sorted(where.items())
        ]

    def _together(self) -> list[Reason]:
        count = sum(ask.request.count for ask in self.want.asks)
        constraints = [one for ask in self.want.asks for one in ask.constraints]
        if count <= 1 and not constraints:
            return []
        enough = 0
        for node in candidates(self.state, self.state.domains["pool"], self.want):
            search = Search(self.state.ledger, lambda *_: ((), 0, 0), Tries().at_most(STEPS))
            devices = self.state.fleet.of(node)
            enough += search.place(self.want.asks, devices, self.state.selectors) is not None
        failed, total = len(self.nodes) - enough, len(self.nodes)
        what = f"{count} matching device{'' if count == 1 else 's'} with room on one node"
        rule = f" that meet matchAttribute {names.qualified('model')}" if constraints else ""
        return [Reason("count", what + rule, failed, total, "node")] if failed else []


def seen(result) -> str:
    """What a clause of these selectors read."""
    if result.value is None:
        return ""
    found = {text.rpartition(".")[2]: written(one) for text, one in result.read.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{name} {one}" for name, one in found.items())


def written(value) -> str:
    if value is None:
        return "nothing"
    return f'"{value}"' if isinstance(value, str) else str(value)


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
    found = list(explain(state, domain, want))
    plain = Plain(state, want).reasons()
    if not state.boards.of("pool").cards:
        found = [reason for reason in found if reason.what != "devices"]
    assert found == plain[:24]


def test_the_nearest_miss_is_told_with_what_it_has(world):
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
        f"free virtual_vram ≥ 39Gi: fails on 2 of 2 devices; nearest: {held}/{held}-gpu0 has 20Gi"
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
    assert (reason.what, reason.nearest) == ("free cpu ≥ 3000m", Nearest("n2", "2000m"))
