"""What the tables remember, and for how long."""

from copy import deepcopy

import pytest
from msgspec.structs import replace

from dray.api import names
from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import DeviceId
from dray.api.pods import NodeExpression, PodNeeds
from dray.messages.facts import SliceObserved
from dray_allocator.devices import usage
from dray_allocator.devices.device_requests import DeviceRequirements, eligible
from dray_allocator.devices.usage import load_of
from dray_allocator.nodes import columns, equivalence, index, tables, tie_break
from dray_allocator.nodes.table import NodeTable


def chosen(world, uid, spec=None, **about):
    world.submit(world.a_pod(uid, **about), spec)
    return world.decisions()[uid].node


def test_a_device_s_identity_is_enough_to_find_its_place_after_the_fleet_grew(make_world):
    """Columns grow and ranges move; uses still land on their card."""
    world = make_world().open()
    for number in range(150):
        world.nodes(world.a_node(f"n{number}"), cards=1 + number % 3)
    node = chosen(world, "a")
    for generation, count in ((2, 5), (3, 1), (4, 3)):
        cards = [world.a_card(f"{node}-gpu{i}") for i in range(count)]
        part = world.a_slice(node, cards, generation=generation)
        world.see(SliceObserved(revision=world.next(), slice=part))
    assert chosen(world, "b") == node
    table = world.state.tables.of("pool")
    loads = table.load[table.card_slice(table.rows[node])].tolist()
    used = [
        load_of(one.shape.totals, world.state.device_usage.of(one.id))
        for one in world.state.published.of(node).cards
    ]
    assert loads == used
    assert table.load_sum[table.rows[node]] == sum(used) > 0
    assert table.cards == sum(len(world.state.published.of(name).cards) for name in table.rows)


def test_released_ranges_are_used_again():
    ranges = columns.IndexRanges()
    first, second = ranges.take(8), ranges.take(4)
    ranges.release(first, 8)
    assert ranges.take(4) == second + 4
    assert ranges.take(8) == first


def test_nodes_with_one_tie_break_are_distinguished_by_uid(make_world, monkeypatch):
    monkeypatch.setattr("dray_allocator.nodes.table.tie", lambda identity: 7)
    nodes = [make_world.a_node(f"n{i}", uid=f"uid-{9 - i}") for i in range(3)]
    world = make_world().open().nodes(*nodes)
    late = make_world().open().nodes(*reversed(nodes))
    assert chosen(world, "a") == chosen(late, "a") == "n2"
    world.node(nodes[2], deleted=True)
    assert chosen(world, "b") == "n1"
    world.node(nodes[2])
    assert chosen(world, "c", world.ask("300", "39Gi")) == "n0"


def test_indexes_are_kept_within_bounds_and_made_again(make_world, monkeypatch):
    monkeypatch.setattr(tables, "MOST_INDEXES", 1)
    monkeypatch.setattr(tables, "_FEWEST", 1)
    world = make_world().open().nodes(*(make_world.a_node(f"n{i}") for i in range(3)))
    first = chosen(world, "a")
    chosen(world, "other", world.ask("1", "1Gi"))
    assert chosen(world, "b") == first
    assert len(world.state.tables._indexes) == 1


def test_an_index_that_lags_behind_the_log_is_built_again(make_world):
    world = make_world().open().nodes(make_world.a_node("n0"), make_world.a_node("n1"))
    node = chosen(world, "a")
    for number in range(9_000):
        world.state.tables.of("pool").use_changed("n1" if number % 2 else "n0")
    assert world.state.tables.of("pool")._log_start > 0
    assert chosen(world, "b") == node


@pytest.mark.parametrize("cards", [(2,), (1, 2)], ids=["nodes alike", "nodes of two sizes"])
@pytest.mark.parametrize("changed", [1, 20, 200])
def test_however_many_nodes_changed_the_index_says_the_same(make_world, changed, cards):
    """One by one, together, or all: three ways to look."""
    asked = world_of(make_world, changed, cards)
    again = world_of(make_world, changed, cards)
    again.state.tables.forget()
    for uid in "abcdef":
        assert chosen(asked, uid, needs=PodNeeds(cpu_milli=200)) == chosen(
            again, uid, needs=PodNeeds(cpu_milli=200)
        )


def world_of(make_world, changed, cards):
    world = make_world().open()
    for i in range(300):
        world.nodes(world.a_node(f"n{i}"), cards=cards[i % len(cards)])
    first = chosen(world, "first", needs=PodNeeds(cpu_milli=200))
    for name in [first, *(f"n{i}" for i in range(300))][:changed]:
        world.node(world.a_node(name, cpu_milli=100))
    return world


@pytest.mark.parametrize("then", [0, 1, 20, 200])
def test_a_node_taken_on_trust_is_not_chosen_unless_the_pod_fits(make_world, monkeypatch, then):
    """Three would be next, had they the cpu; in between so many others change."""
    monkeypatch.setattr(index, "_MAX_LOADS_ONE_BY_ONE", 5)
    world = make_world().open()
    world.nodes(*(world.a_node(f"n{i}") for i in range(300)), cards=1)
    asked, needs = world.ask("100", "10Gi"), PodNeeds(cpu_milli=200)
    first = chosen(world, "first", asked, needs=needs)
    assert chosen(world, "second", asked, needs=needs) == first
    others = [f"n{i}" for i in range(300) if f"n{i}" != first]
    for name in others[:3]:
        only = NodeExpression("metadata.name", "In", (name,), is_field=True)
        small = world.ask("1", "1Gi")
        assert chosen(world, f"on-{name}", small, needs=PodNeeds(node_terms=((only,),))) == name
        world.node(world.a_node(name, cpu_milli=100))
    assert chosen(world, "third", asked, needs=needs) == first
    for name in others[3 : 3 + then]:
        world.node(world.a_node(name, cpu_milli=100))
    assert chosen(world, "fourth", asked, needs=needs) in others[3 + then :]


def test_what_tells_too_many_apart_is_looked_at_on_the_node_itself(make_world, monkeypatch):
    monkeypatch.setattr(equivalence, "MOST_VALUES", 2)
    world = make_world().open()
    world.nodes(*(make_world.a_node(f"n{i}", labels={"host": f"h{i}"}) for i in range(6)))
    assert chosen(world, "a", needs=PodNeeds(node_selector={"host": "h4"})) == "n4"
    uuid = 'device.attributes["tensor-fusion.ai.dra-driver"].uuid == "n2-gpu0"'
    assert chosen(world, "b", world.ask(selectors=(uuid,))) == "n2"


def test_a_pod_that_names_its_nodes_goes_to_the_better_one(make_world):
    world = make_world().open().nodes(*(make_world.a_node(f"n{i}") for i in range(6)), cards=2)
    named = NodeExpression("metadata.name", "In", ("n1", "n4", "gone"), is_field=True)
    for busy in ("n1", "n4"):
        only = replace(named, values=(busy,))
        asked = world.ask("10", "1Gi") if busy == "n1" else world.ask("20", "2Gi")
        assert chosen(world, f"on-{busy}", asked, needs=PodNeeds(node_terms=((only,),))) == busy
    assert chosen(world, "p", needs=PodNeeds(node_terms=((named,),))) == "n4"


def test_loads_and_ties_fit_into_a_key():
    assert usage.MOST_LOAD > 2 * usage.FULL
    assert (usage.MOST_LOAD << tie_break.TIE_BITS) + 2**tie_break.TIE_BITS - 1 < index.NONE


def test_a_table_without_nodes_offers_none(make_world):
    world = make_world().open()
    assert isinstance(world.state.tables.of("pool"), NodeTable)
    world.submit(world.a_pod("p"))
    assert not world.decisions()


def test_a_use_that_changes_before_its_node_is_read_again_lands_on_its_card(make_world):
    """Read as it was, the node has no such card, and its neighbour is where it would be."""
    world = make_world().open().nodes(*(make_world.a_node(f"n{i}") for i in range(2)), cards=2)
    chosen(world, "a", world.ask("1", "1Gi"))
    table = world.state.tables.of("pool")
    first, other = sorted(table.rows, key=lambda name: table.first_at[table.rows[name]])
    before = table.load[table.card_slice(table.rows[other])].tolist()
    cards = [world.a_card(f"{first}-gpu{i}") for i in range(4)]
    world.see(SliceObserved(revision=world.next(), slice=world.a_slice(first, cards, generation=2)))
    used = AllocatedDevice(
        names.GPU_REQUEST,
        DeviceId(names.DRIVER, first, cards[3].name),
        consumed={"virtual_vram": "40Gi"},
    )
    claim = world.a_claim("full", world.ask())
    world.claim(replace(claim, allocation=Allocation((used,))))
    world.state.tables.of("pool")
    assert table.load[table.card_slice(table.rows[other])].tolist() == before
    assert table.load[table.card_slice(table.rows[first])].tolist()[3] == usage.FULL


def test_a_table_that_follows_uses_equals_one_that_reads_them(make_world):
    """Of one card, of some, of all alike or not, and of one card twice."""
    world = make_world().open().nodes(make_world.a_node("n0"), cards=3)
    chosen(world, "a")
    table = world.state.tables.of("pool")
    some, whole = {"virtual_vram": "10Gi"}, {}
    for number, uses in enumerate(
        [
            [(0, some), (1, some), (2, some)],
            [(0, some), (0, some), (1, some)],
            [(2, some), (2, some), (2, some)],
            [(0, some), (1, some), (2, whole)],
            [(0, whole), (1, whole), (2, whole)],
            [(1, some), (2, some)],
            [(1, whole)],
        ]
    ):
        used = [
            AllocatedDevice("gpu", DeviceId(names.DRIVER, "n0", f"n0-gpu{at}"), consumed=consumed)
            for at, consumed in uses
        ]
        kept, ended = (world.a_claim(f"{name}-{number}", world.ask()) for name in ("kept", "ended"))
        for claim, devices in ((kept, used), (ended, used[:1]), (ended, used)):
            world.claim(replace(claim, allocation=Allocation(tuple(devices))))
            assert _columns_of(table) == _columns_of(_table_read_again(table))
        world.claim(ended)
        assert _columns_of(table) == _columns_of(_table_read_again(table))


def _table_read_again(table):
    again = NodeTable(table._source)
    again.put("n0")
    for name in table.dimensions:
        again.dimension(name)
    return again


def _columns_of(table):
    here, row = table.card_slice(table.rows["n0"]), table.rows["n0"]
    by_place = [column[here].tolist() for column in (table.load, table.open, *table.free)]
    by_row = [column[row].item() for column in (table.load_sum, table.mean_load, *table.most_free)]
    return by_place, by_row


def test_the_best_node_stays_the_best_until_it_is_worse_or_another_one_is_better(make_world):
    """The index remembers it; three fit on a node."""
    world = make_world().open().nodes(*(make_world.a_node(f"n{i}") for i in range(4)), cards=1)
    asked = world.ask("100", "10Gi")
    nodes = [chosen(world, uid, asked) for uid in "abcd"]
    assert nodes[0] == nodes[1] == nodes[2] != nodes[3]
    world.node(world.a_node(nodes[3], unschedulable=True))
    another = chosen(world, "e", asked)
    assert another not in nodes
    world.commit(world.decisions()["a"])
    world.claim(world.state.facts.claims[world.a_claim("a", asked).uid], deleted=True)
    assert chosen(world, "f", asked) == nodes[0]
    world.node(world.a_node(nodes[0]), deleted=True)
    assert chosen(world, "g", asked) == another
    world.node(world.a_node(nodes[3]))
    assert chosen(world, "h", asked) in (another, nodes[3])


def test_a_copy_of_the_state_has_tables_of_its_own(make_world):
    """Tables read the state that they are of; the copy's must not read the other one's."""
    world = make_world().open().nodes(*(make_world.a_node(f"n{i}") for i in range(2)))
    node = chosen(world, "a")
    copy = deepcopy(world.state)
    table = copy.tables.of("pool")
    assert table is not world.state.tables.of("pool")
    copy.facts.nodes.pop(node)
    copy.tables.node_changed(node)
    assert node not in copy.tables.of("pool").rows
    assert node in world.state.tables.of("pool").rows


def test_nodes_of_a_copy_have_no_more_in_common_than_those_of_the_state(make_world):
    names_of = [f"n{number}" for number in range(3)]
    world = make_world().open().nodes(*map(make_world.a_node, names_of))
    copy, ask = (
        deepcopy(world.state),
        DeviceRequirements(0, world.ask().requests[0], (), (), b"any"),
    )
    for name in names_of:
        (card,) = eligible(ask, copy.published.of(name), copy.selectors)
        assert card.node == name
