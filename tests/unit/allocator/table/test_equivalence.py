"""Classes distinguish only what requests read."""

import pytest

from dray.api.devices import DeviceId
from dray.cel.reads import Read
from dray_allocator.devices.published_devices import Card, shape_of
from dray_allocator.nodes import equivalence, equivalence_keys
from dray_allocator.nodes.equivalence import EquivalenceClasses


def by_size() -> EquivalenceClasses[str]:
    return EquivalenceClasses(len)


FIRST = {"first": lambda thing: thing[0]}


def test_things_are_of_one_kind_until_a_question_tells_them_apart():
    known = by_size()
    assert known.of("ab") == known.of("cd") != known.of("a")
    kinds_of_all = known.renumber(FIRST, ["ab", "cd", "ax"])
    assert kinds_of_all[0] == kinds_of_all[2] != kinds_of_all[1]
    assert known.of("az") == kinds_of_all[0]
    assert known.distinguishes("first")
    assert known.example(kinds_of_all[1]) == "cd"


def test_what_has_too_many_values_tells_nothing_apart(monkeypatch):
    monkeypatch.setattr(equivalence, "MOST_VALUES", 2)
    known = by_size()
    assert len(set(known.renumber(FIRST, ["a", "b", "c"]))) == 1
    assert known.has_property("first")
    assert not known.distinguishes("first")


def test_an_attribute_with_too_many_values_is_ignored_once_classes_are_numbered_again(monkeypatch):
    monkeypatch.setattr(equivalence, "MOST_VALUES", 2)
    known = by_size()
    known.renumber(FIRST, ["a", "b"])
    assert known.of("c") not in (known.of("a"), known.of("b"))
    assert known.needs_renumbering
    assert len(set(known.renumber({}, ["a", "b", "c"]))) == 1
    assert not known.needs_renumbering
    assert not known.distinguishes("first")


def test_kinds_of_the_past_are_forgotten_once_they_are_many(monkeypatch):
    monkeypatch.setattr(equivalence, "_MOST_OLD_KINDS", 3)
    known = by_size()
    known.renumber({}, ["a"])
    for length in range(2, 8):
        known.of("a" * length)
    assert known.needs_renumbering
    known.renumber({}, ["aaaaaaa"])
    assert known.count == 1
    assert not known.needs_renumbering


def test_few_items_keep_few_kinds_of_the_past(monkeypatch):
    monkeypatch.setattr(equivalence, "_LEAST_OLD_KINDS", 2)
    few, many = by_size(), by_size()
    few.renumber({}, ["a"])
    many.renumber({}, ["a"] * 100)
    for length in range(2, 7):
        few.of("a" * length)
        many.of("a" * length)
    assert few.needs_renumbering
    assert not many.needs_renumbering


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), ("1", 1), (None, ""), ("a", "b")],
)
def test_values_are_distinguished_by_their_type(make_world, one, other):
    (read,) = equivalence_keys.attributes([Read("attributes", "d", "x")]).values()

    def value(published: object) -> object:
        device = make_world.a_card("c")
        device.attributes.update({"d/x": published} if published is not None else {})
        return read(Card(DeviceId("d", "n", "c"), device, node="n", shape=shape_of(device)))

    assert value(one) != value(other)
    assert value(one) == value(one)
