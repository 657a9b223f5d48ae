"""A fleet in columns: slots, and masks that follow changes."""

import numpy as np
import pytest
from tests.unit.cel.columnar.cards import HAS_16GI, IS_A100, D, failing, matching, view

from dray.cel.columnar import Fleet
from dray.cel.device import DeviceView
from dray.cel.errors import CelCompileError
from dray.domain.devices import Version
from dray.domain.quantities import Quantity, parse_quantity


def test_a_mask_names_the_devices_that_match_and_those_that_fail(fleet: Fleet) -> None:
    assert (matching(fleet, IS_A100), failing(fleet, IS_A100)) == (["a"], ["c"])


def test_a_guard_turns_failing_into_not_matching(fleet: Fleet) -> None:
    guarded = f'has(device.attributes["{D}"].model) && {IS_A100}'

    assert (matching(fleet, guarded), failing(fleet, guarded)) == (["a"], [])


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        (f'has(device.attributes["{D}"].model)', ["new"]),
        (f'"model" in device.attributes["{D}"]', ["new"]),
        (f'has(device.capacity["{D}"].memory)', ["new"]),
        (f'device.attributes["{D}"].model == "new model"', ["new"]),
        (f'device.attributes["{D}"].model != "A100"', ["new"]),
        (f'device.attributes["{D}"].model in ["A100", "new model"]', ["new"]),
        (f'device.attributes["{D}"].index in [3, 7]', ["new"]),
        (f'device.attributes["{D}"].index in [2.5, 7.0]', ["new"]),
        (f'device.attributes["{D}"].index > 6.5', ["new"]),
        (f'device.attributes["{D}"].model.startsWith("new")', ["new"]),
        (f'device.attributes["{D}"].?model.orValue("") != ""', ["new"]),
        (f'device.attributes["{D}"].model == "A100" || {HAS_16GI}', ["new"]),
        (f'!(device.attributes["{D}"].model == "A100")', ["new"]),
        (f'has(device.attributes["{D}"].ecc) ? false : {HAS_16GI}', ["new"]),
        (f'device.attributes["{D}"].model + device.driver == "new model{D}"', ["new"]),
        (f'device.attributes["{D}"].exists(name, name == "model")', ["new"]),
        (f'device.attributes["{D}"].all(name, value, value != "A100")', ["new", "plain"]),
    ],
)
def test_values_seen_for_the_first_time_are_decided(clause: str, expected: list[str]) -> None:
    fleet = Fleet()
    fleet.masks(clause)
    fleet.put("plain", view())
    fleet.put("new", view("99Gi", model="new model", index=7))

    assert matching(fleet, clause) == sorted(expected, key=fleet.slot_of)


@pytest.mark.parametrize("is_live_before", [True, False])
def test_clauses_on_one_property_are_joined_as_cel_joins_them(is_live_before: bool) -> None:
    fleet, model = Fleet(), f'device.attributes["{D}"].model'
    neither, both = f'{model} == "x" && {model} == "y"', f'{model} != "x" && {model} != "y"'
    absorbed = f'{model} == "x" && {model} >= 1 && {model} == "y"'
    for expression in (neither, both, absorbed) if is_live_before else ():
        fleet.masks(expression)
    for name in ("x", "y", "z"):
        fleet.put(name, view(model=name))
    fleet.put("none", view())

    assert (matching(fleet, neither), failing(fleet, neither)) == ([], ["none"])
    assert (matching(fleet, both), failing(fleet, both)) == (["z"], ["none"])
    assert (matching(fleet, absorbed), failing(fleet, absorbed)) == ([], ["none"])


def test_a_device_keeps_its_slot_while_it_is_replaced(fleet: Fleet) -> None:
    before = fleet.slot_of("b")

    assert fleet.put("b", view("16Gi", model="A100")) == before
    assert matching(fleet, IS_A100) == ["a", "b"]


def test_slots_of_removed_devices_are_used_again_and_free_ones_are_false(fleet: Fleet) -> None:
    slot = fleet.slot_of("a")
    fleet.masks(IS_A100)
    fleet.remove("a")

    assert fleet.device_at(slot) is None
    assert (matching(fleet, IS_A100), failing(fleet, IS_A100)) == ([], ["c"])
    assert fleet.put("d", view(model="A100")) == slot
    assert (fleet.slots, len(fleet)) == (3, 3)
    assert matching(fleet, IS_A100) == ["d"]


def test_a_slice_replaces_what_it_held_before(fleet: Fleet) -> None:
    fleet.put_slice("node-1", {"x": view(model="A100"), "y": view(model="A100")})
    fleet.put_slice("node-1", {"y": view(model="T4"), "z": view(model="A100")})

    assert matching(fleet, IS_A100) == ["a", "z"]
    fleet.remove_slice("node-1")
    assert matching(fleet, IS_A100) == ["a"]
    assert "y" not in fleet


def test_a_device_that_moved_to_a_new_slice_outlives_the_old_one() -> None:
    fleet = Fleet()
    fleet.put_slice("old", {"x": view(model="A100"), "y": view(model="A100")})
    fleet.put_slice("new", {"x": view(model="A100")})
    fleet.remove_slice("old")

    assert matching(fleet, IS_A100) == ["x"]
    fleet.put_slice("new", {})
    assert matching(fleet, IS_A100) == []


def test_masks_given_out_follow_the_fleet_without_being_copied(fleet: Fleet) -> None:
    masks = fleet.masks(IS_A100)
    fleet.put("b", view(model="A100"))

    assert masks.match.tolist() == [True, True, False]
    assert np.shares_memory(masks.match, fleet.masks(IS_A100).match)


def test_a_broken_device_fails_every_selector_until_it_is_mended(fleet: Fleet) -> None:
    selectors = ["true", "false", IS_A100]
    for expression in selectors:
        fleet.masks(expression)
    fleet.put("a", view(model="A100", broken="attribute v: parse semantic version"))
    fleet.put("d", view(model="A100", version=Version("no version")))

    assert [failing(fleet, text) for text in selectors] == [["a", "d"], ["a", "d"], ["a", "c", "d"]]
    assert matching(fleet, "true") == ["b", "c"]
    fleet.put("a", view(model="A100"))
    fleet.remove("d")
    assert (matching(fleet, "true"), failing(fleet, "true")) == (["a", "b", "c"], [])


def test_values_equal_in_python_are_told_apart() -> None:
    fleet = Fleet()
    fleet.put("int", view(x=1))
    fleet.put("bool", view(x=True))
    fleet.put("string", view(x="1"))

    assert matching(fleet, f'device.attributes["{D}"].x == 1') == ["int"]
    assert matching(fleet, f'device.attributes["{D}"].x == true') == ["bool"]
    assert matching(fleet, f'device.attributes["{D}"].x == "1"') == ["string"]
    assert failing(fleet, f'device.attributes["{D}"].x >= 1') == ["bool", "string"]


@pytest.mark.parametrize("asks_first", [True, False])
@pytest.mark.parametrize("amount", ["1n", "999999999n", "1", "9223372036854775807", "9E", "-1n"])
def test_quantities_compare_exactly(amount: str, asks_first: bool) -> None:
    fleet, exact = Fleet(), parse_quantity(amount)
    wanted = f'device.capacity["{D}"].memory.compareTo(quantity("{amount}"))'
    less, equal, least = f"{wanted} < 0", f"{wanted} == 0", f"{wanted} >= 0"
    for expression in (less, equal, least) if asks_first else ():
        fleet.masks(expression)
    fleet.put("less", DeviceView(D, {}, {"memory": Quantity(exact.nano - 1)}))
    fleet.put("equal", DeviceView(D, {}, {"memory": exact}))
    fleet.put("more", DeviceView(D, {}, {"memory": Quantity(exact.nano + 1)}))

    assert matching(fleet, less) == ["less"]
    assert matching(fleet, equal) == ["equal"]
    assert matching(fleet, least) == ["equal", "more"]


def test_ints_compare_exactly_and_with_doubles_as_doubles() -> None:
    fleet = Fleet()
    for number in (2**53, 2**53 + 1, 2**63 - 1):
        fleet.put(number, view(x=number))

    assert matching(fleet, f'device.attributes["{D}"].x > 9007199254740992') == [
        2**53 + 1,
        2**63 - 1,
    ]
    assert matching(fleet, f'device.attributes["{D}"].x <= 9007199254740992.0') == [
        2**53,
        2**53 + 1,
    ]


def test_clauses_are_told_apart(fleet: Fleet) -> None:
    clauses = fleet.clauses(f"{HAS_16GI} && {IS_A100}")

    assert [clause.text for clause in clauses] == [HAS_16GI, IS_A100]
    assert [clause.match.tolist() for clause in clauses] == [
        [True, True, False],
        [True, False, False],
    ]
    assert [clause.errors.tolist() for clause in clauses] == [[False] * 3, [False, False, True]]


def test_what_is_no_selector_is_refused_and_not_kept(fleet: Fleet) -> None:
    with pytest.raises(CelCompileError):
        fleet.masks("device.atributes")

    assert fleet.live == ()


def test_forgotten_selectors_leave_no_tables_behind(fleet: Fleet) -> None:
    selectors = [
        f"{IS_A100} || {HAS_16GI}",
        f"!({IS_A100}) && {HAS_16GI}",
        f'device.attributes["{D}"].exists(name, device.attributes["{D}"][name] == "A100")',
    ]
    for expression in selectors:
        fleet.masks(expression)
    for expression in selectors:
        fleet.forget(expression)

    assert fleet._properties.verdicts() == []
    assert fleet._plans._parts == {}
    fleet.put("b", view(model="A100"))
    assert matching(fleet, selectors[1]) == []


def test_hundreds_of_selectors_and_devices_keep_their_places() -> None:
    fleet = Fleet()
    selectors = [f'device.attributes["{D}"].index == {number}' for number in range(200)]
    for expression in selectors:
        fleet.masks(expression)
    for number in range(1000):
        fleet.put(number, view(index=number % 250, serial=f"s{number}"))
    for expression in selectors[::3]:
        fleet.forget(expression)
    fleet.put(7, view(index=8))

    assert [matching(fleet, expression) for expression in selectors] == [
        sorted({*range(number, 1000, 250), *([7] if number == 8 else [])} - {7 * (number == 7)})
        if number
        else [0, 250, 500, 750]
        for number in range(200)
    ]
