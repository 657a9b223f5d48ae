"""How little is asked of the exact evaluator, and where it alone can answer."""

from collections.abc import Callable

import pytest
from tests.unit.cel.columnar.cards import HAS_16GI, IS_A100, D, failing, matching, view

from dray.cel.columnar import Fleet
from dray.cel.columnar.exact import Exact
from dray.cel.columnar.facts import DRIVER, LAYOUT, SHARED, Path
from dray.cel.columnar.reads import EVERY, paths_of
from dray.cel.device import DeviceView
from dray.cel.syntax import parse
from dray.cel.tree import Expr
from dray.domain.devices import Version

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
