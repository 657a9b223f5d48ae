"""A fleet in columns: slots, masks that follow changes, and how little is evaluated for them."""

from collections.abc import Callable

import numpy as np
import pytest

from dray.cel.columnar import Fleet
from dray.cel.columnar.columns import ABSENT, Column
from dray.cel.columnar.exact import Exact
from dray.cel.columnar.facts import DRIVER, LAYOUT, SHARED, Path
from dray.cel.columnar.reads import EVERY, paths_of
from dray.cel.columnar.spreading import spread
from dray.cel.device import DeviceView
from dray.cel.errors import CelCompileError
from dray.cel.syntax import parse
from dray.cel.tree import Expr
from dray.domain.devices import AttributeValue, Version
from dray.domain.quantities import Quantity, parse_quantity

D = "gpu.example.com"
IS_A100 = f'device.attributes["{D}"].model == "A100"'
HAS_16GI = f'device.capacity["{D}"].memory.compareTo(quantity("16Gi")) >= 0'


def view(
    memory: str | None = None, *, broken: str = "", **attributes: AttributeValue
) -> DeviceView:
    capacity = {} if memory is None else {"memory": parse_quantity(memory)}
    return DeviceView(D, attributes, capacity, False, broken)


def matching(fleet: Fleet, expression: str) -> list[object]:
    return [fleet.device_at(slot) for slot in np.flatnonzero(fleet.masks(expression).match)]


def failing(fleet: Fleet, expression: str) -> list[object]:
    return [fleet.device_at(slot) for slot in np.flatnonzero(fleet.masks(expression).errors)]


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.put("a", view("80Gi", model="A100"))
    fleet.put("b", view("16Gi", model="T4"))
    fleet.put("c", view("8Gi"))
    return fleet


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


LISTED = f'device.attributes["{D}"].model in ["A100", "T4"]'
"""Kubernetes can't hash a version to look it up: that ends the evaluation, whatever comes next."""


@pytest.mark.parametrize("is_live_before", [True, False])
def test_what_ends_an_evaluation_is_not_absorbed_by_what_follows(is_live_before: bool) -> None:
    fleet, late, early = Fleet(), f"{LISTED} && false", f"!({HAS_16GI}) && {LISTED}"
    for expression in (late, early) if is_live_before else ():
        fleet.masks(expression)
    fleet.put("big", view("80Gi", model=Version("1.2.3")))
    fleet.put("small", view("8Gi", model=Version("1.2.3")))
    fleet.put("listed", view("8Gi", model="A100"))

    assert (matching(fleet, late), failing(fleet, late)) == ([], ["big", "small"])
    assert (matching(fleet, early), failing(fleet, early)) == (["listed"], ["small"])
    assert [clause.errors.tolist() for clause in fleet.clauses(late)] == [
        [True, True, False],
        [False] * 3,
    ]
    fleet.put("big", view("8Gi", model="T4"))
    assert (matching(fleet, early), failing(fleet, early)) == (["big", "listed"], ["small"])


def test_what_ended_evaluations_of_a_device_that_is_gone_is_forgotten(fleet: Fleet) -> None:
    clauses = f"{LISTED} && {HAS_16GI}"
    fleet.masks(clauses)
    version = view("80Gi", model=Version("1.2.3"))
    fleet.put_all([("a", version), ("a", view("80Gi", model="A100"))])

    assert (matching(fleet, clauses), failing(fleet, clauses)) == (["a", "b"], [])
    assert fleet.clauses(clauses)[0].match.tolist() == [True, True, False]
    assert fleet.clauses(clauses)[0].errors.tolist() == [False, False, True]


def test_an_evaluation_that_is_too_dear_fails_whatever_the_other_clauses_say(fleet: Fleet) -> None:
    dear = "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"

    assert failing(fleet, f"{dear} && false") == ["a", "b", "c"]
    assert failing(fleet, f'device.driver == "x" && {dear}') == []
    assert failing(fleet, f"{HAS_16GI} && {dear}") == ["a", "b"]


def test_branches_are_not_taken_for_what_they_would_be_alone(fleet: Fleet) -> None:
    present = f'has({{"k": device.capacity["{D}"]}}.?k.memory)'
    branch = f"{HAS_16GI} ? true : {present}"

    assert failing(fleet, present) == []
    assert failing(fleet, branch) == ["c"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every question put to the exact evaluator about a whole condition."""
    questions: list[str] = []
    real = Exact.judge

    def counting(self: Exact, node: Expr, *, whole: bool) -> Callable[[DeviceView], int]:
        exact = real(self, node, whole=whole)

        def verdict(device: DeviceView) -> int:
            questions.append(type(node).__name__)
            return exact(device)

        return verdict

    monkeypatch.setattr(Exact, "judge", counting)
    return questions


def test_what_has_no_form_is_asked_once_per_distinct_value(asked: list[str]) -> None:
    fleet = Fleet()
    for number in range(500):
        model = "A100" if number % 2 else "T4"
        fleet.put(number, view("80Gi", model=model, uuid=f"GPU-{number}"))

    assert fleet.masks(f'device.attributes["{D}"].model.startsWith("A")').match.sum() == 250
    assert len(asked) == 3  # both models, and none
    both = f'device.attributes["{D}"].model + "x" == string(device.driver)'
    assert not fleet.masks(both).match.any()
    assert len(asked) == 5  # both pairs
    fleet.put(0, view("40Gi", model="A100", uuid="GPU-new"))
    assert len(asked) == 5


def test_comparisons_are_not_asked_of_the_exact_evaluator(asked: list[str], fleet: Fleet) -> None:
    for expression in (IS_A100, HAS_16GI, f"{IS_A100} || {HAS_16GI}", f'!("x" in ["{D}"])'):
        fleet.masks(expression)
    for number in range(20):
        fleet.put(number, view(f"{number}Gi", model=f"m{number}"))

    assert asked == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (IS_A100, [Path("attributes", D, "model")]),
        (HAS_16GI, [Path("capacity", D, "memory")]),
        ("device.driver == 'x'", [DRIVER]),
        ("device.allowMultipleAllocations", [SHARED]),
        (f'"model" in device.attributes["{D}"]', [Path("attributes", D, "model")]),
        (f'"{D}" in device.attributes', [LAYOUT]),
        ("has(device.attributes.x)", [LAYOUT]),
        (
            "device.attributes[device.driver].model == 'A100'",
            [DRIVER, Path("attributes", EVERY, "model")],
        ),
        (
            f'cel.bind(d, device.attributes["{D}"], d.model == d["name"])',
            [Path("attributes", D, "model"), Path("attributes", D, "name")],
        ),
        (f'device.attributes["{D}"].exists(x, x == "model")', [LAYOUT]),
        (
            f'device.attributes["{D}"].all(k, v, v == 1)',
            [LAYOUT, Path("attributes", D, EVERY)],
        ),
        (
            "device.attributes == device.attributes",
            [LAYOUT, Path("attributes", EVERY, EVERY)],
        ),
        (f'device.attributes["{D}"].?model.hasValue()', [Path("attributes", D, "model")]),
        (f'device.attributes[?"{D}"].hasValue()', [LAYOUT, Path("attributes", D, EVERY)]),
        ("[1].exists(device, device == 1)", []),
        ("1 < 2", []),
    ],
)
def test_reads_are_no_more_than_what_decides(expression: str, expected: list[Path]) -> None:
    assert list(paths_of(parse(expression))) == expected


@pytest.mark.parametrize("count", [255, 256, 300, 66_000])
def test_a_column_widens_as_values_come(count: int) -> None:
    column = Column(count)
    for slot in range(count):
        column.put(slot, f"value {slot}")

    assert [column.values[code] for code in column.codes] == [f"value {s}" for s in range(count)]


@pytest.mark.parametrize("count", [8, 100, 250, 300, 70_000])
@pytest.mark.parametrize("share", [0, 0.01, 0.4, 0.99, 1])
def test_codes_are_spread_over_the_slots_however_many_there_are(count: int, share: float) -> None:
    column = Column(count)
    column.begin([], list(range(count)), np.arange(count)[::-1] + 1)
    wanted = range(1, int(count * share) + 1)
    chosen = bytes(code in wanted for code in range(count + 1))

    found = spread(column, chosen, count)
    assert np.array_equal(found, np.isin(column.codes, list(wanted)))


def test_a_column_of_changing_values_does_not_grow() -> None:
    column = Column(4)
    for number in range(1000):
        for slot in range(4):
            column.put(slot, number * 4 + slot)
    column.clear(0)

    assert len(column.values) <= 6
    assert [column.values[code] for code in column.codes[1:]] == [3997, 3998, 3999]
    assert column.codes[0] == ABSENT
