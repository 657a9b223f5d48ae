"""Selectors are asked once per device that they can tell apart."""

import pytest

from dray.api import names
from dray.api.devices import Capacity, Device, DeviceId, Version
from dray.cel.eval.program import Program, compile
from dray_allocator.devices.published_devices import Card, shape_of
from dray_allocator.devices.selector_cache import SelectorCache, named_reads

D = f'device.attributes["{names.DRIVER}"]'


def _card(device: Device) -> Card:
    return Card(DeviceId(names.DRIVER, "n", device.name), device, node="n", shape=shape_of(device))


def _cards(count: int, **attributes: object) -> list[Card]:
    return [
        _card(Device(f"g{n}", attributes={"uuid": f"g{n}", "model": "A100", **attributes}))  # type: ignore[dict-item]
        for n in range(count)
    ]


@pytest.fixture
def asked(monkeypatch):
    """How often the evaluator was asked."""
    calls = []
    original = Program.matches

    def counted(program, view):
        calls.append(view)
        return original(program, view)

    monkeypatch.setattr(Program, "matches", counted)
    return calls


def test_a_thousand_cards_of_one_model_are_one_evaluation(asked):
    selectors = SelectorCache()
    assert all(selectors.matches((f'{D}.model == "A100"',), card) for card in _cards(1000))
    assert len(asked) == 1


def test_a_selector_that_reads_the_uuid_is_asked_for_every_card(asked):
    selectors = SelectorCache()
    found = [selectors.matches((f'{D}.uuid == "g3"',), card) for card in _cards(10)]
    assert found.count(True) == 1
    assert len(asked) == 10


def test_a_selector_that_may_read_anything_is_asked_for_every_card(asked):
    selectors = SelectorCache()
    expression = f'{D}.exists(key, key == "uuid")'
    assert all(selectors.matches((expression,), card) for card in _cards(5))
    assert len(asked) == 5


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        (f'"model" in {D} && {D}.model == "A100"', {"model"}),
        (f'has({D}.nvlink) || {D}["uuid"] == "x"', {"nvlink", "uuid"}),
        (f'device.driver == "{names.DRIVER}"', {""}),
        (f'cel.bind(all, {D}, all.model == "A100")', None),
        (f'{D}.all(key, key != "x")', None),
    ],
)
def test_what_an_expression_reads_is_known_or_counts_as_everything(expression, read):
    reads = named_reads(compile(expression).tree)
    assert (None if reads is None else {one.name for one in reads}) == read


def test_a_device_with_a_broken_attribute_is_distinguished():
    selectors = SelectorCache()
    whole, broken = _cards(1)[0], _cards(1, driver=Version("not-semver"))[0]
    expression = (f'{D}.model == "A100"',)
    assert selectors.matches(expression, whole)
    assert not selectors.matches(expression, broken)


def test_equal_amounts_of_different_types_are_distinguished():
    selectors = SelectorCache()
    expression = f'device.capacity["{names.DRIVER}"].cores.isInteger()'
    cards = [_card(Device(text, capacity={"cores": Capacity(text)})) for text in ("1", "1000m")]
    assert [selectors.matches((expression,), card) for card in cards] == [True, False]


def test_an_expression_that_can_t_compile_matches_nothing_and_says_why():
    selectors = SelectorCache()
    card = _cards(1)[0]
    assert not selectors.matches(("device.nonsense",), card)
    (result,) = selectors.explain("device.nonsense", card)
    assert result.value is None
    assert "nonsense" in result.error
