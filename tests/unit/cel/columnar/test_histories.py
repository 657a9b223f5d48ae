"""Whatever happens to a fleet, its masks are what the exact evaluator says of each device."""

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.cel.columnar.generated import (
    DRIVER,
    STANDARD,
    compiles,
    environments,
    families,
    selectors,
    steps,
    views,
)

from dray.cel.columnar import Fleet
from dray.cel.columnar.columns import Mask
from dray.cel.device import DeviceView, Published
from dray.cel.environment import Environment
from dray.cel.errors import CelEvaluationError
from dray.cel.evaluate import Program, compile
from dray.domain.devices import Version
from dray.domain.quantities import Quantity


@dataclass
class World:
    """The fleet, and what should be in it."""

    environment: Environment = STANDARD
    devices: dict[str, DeviceView] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fleet = Fleet(self.environment)

    def put(self, device: str, view: DeviceView) -> None:
        self.fleet.put(device, view)
        self.devices[device] = view

    def check(self, expression: str) -> None:
        """Compare the masks of one selector with the exact evaluator, slot by slot."""
        masks = self.fleet.masks(expression)
        program = compile(expression, self.environment)
        assert self.found(masks.match, masks.errors) == {
            device: _exact(program, view) for device, view in self.devices.items()
        }
        for at, clause in enumerate(self.fleet.clauses(expression)):
            told = {device: program.explain(view)[at] for device, view in self.devices.items()}
            assert self.found(clause.match, clause.errors) == {
                device: (one.value is True, one.value is None) for device, one in told.items()
            }

    def found(self, match: Mask, errors: Mask) -> dict[object, tuple[bool, bool]]:
        """Match and error by device; free slots have neither."""
        slots = {self.fleet.device_at(slot): slot for slot in range(self.fleet.slots)}
        free = [s for s in range(self.fleet.slots) if self.fleet.device_at(s) is None]
        assert not match[free].any()
        assert not errors[free].any()
        slots.pop(None, None)
        return {device: (bool(match[at]), bool(errors[at])) for device, at in slots.items()}


def _exact(program: Program, view: DeviceView) -> tuple[bool, bool]:
    try:
        return program.matches(view), False
    except CelEvaluationError:
        return False, True


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(selectors.filter(compiles), min_size=4, max_size=4),
    st.lists(steps, max_size=30),
    st.booleans(),
    environments,
)
def test_masks_follow_every_history(
    expressions: list[str],
    history: list[tuple],
    lives_from_the_start: bool,
    environment: Environment,
) -> None:
    world = World(environment)
    for expression in expressions if lives_from_the_start else []:
        world.fleet.masks(expression)
    for kind, which, what in history:
        match kind:
            case "put":
                world.put(which, what)
            case "remove":
                world.fleet.remove(which)
                world.devices.pop(which, None)
            case "slice" | "drop slice":
                _follow_slice(world, which, what)
            case "ask":
                world.check(expressions[which])
            case _:
                world.fleet.forget(expressions[which])

    for expression in expressions:
        world.check(expression)


def _follow_slice(world: World, name: str, devices: list[DeviceView] | None) -> None:
    for device in [device for device in world.devices if device.startswith(f"{name}/")]:
        del world.devices[device]
    if devices is None:
        world.fleet.remove_slice(name)
        return
    found = {f"{name}/{at}": view for at, view in enumerate(devices)}
    world.fleet.put_slice(name, found)
    world.devices.update(found)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(families, st.lists(views, max_size=8), st.lists(views, max_size=8), st.data())
def test_clauses_that_differ_in_constants_keep_apart(
    expressions: list[str], before: list[DeviceView], after: list[DeviceView], data: st.DataObject
) -> None:
    world = World()
    kept = [expression for expression in expressions if compiles(expression)]
    for at, view in enumerate(before):
        world.put(f"gpu-{at}", view)
    for expression in kept:
        world.fleet.masks(expression)
    for expression in data.draw(st.lists(st.sampled_from(kept), max_size=3)) if kept else []:
        world.fleet.forget(expression)

    for at, view in enumerate(after):
        world.put(f"gpu-{at}", view)

    for expression in kept:
        world.check(expression)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(selectors.filter(compiles), st.lists(views, max_size=25), st.booleans(), environments)
def test_a_selector_gives_the_same_before_and_after_its_devices(
    expression: str, devices: list[DeviceView], asks_first: bool, environment: Environment
) -> None:
    world = World(environment)
    if asks_first:
        world.fleet.masks(expression)

    for at, view in enumerate(devices):
        world.put(f"gpu-{at}", view)

    world.check(expression)


def _variety(number: int) -> DeviceView:
    """A device like few others: more distinct values than are compared one by one."""
    values = (number * 37 % 500, f"GPU-{number}", number % 3 == 0, Version(f"1.{number}.0"))
    attributes: dict[str, Published] = {"serial": f"s{number % 97:03}", "ecc": number % 2 == 0}
    attributes["index"] = values[0] if number % 9 else values[number % 4]
    if number % 10:
        attributes["model"] = f"M{number * 7 % 411}"
    amount = Quantity(number * 10**9 + number % 2, exponent=-9 if number % 2 else 0)
    return DeviceView(DRIVER, attributes, {"memory": amount, "cores": Quantity(10**30 + number)})


MANY = [
    "index > 150", "index <= 77.5", "index == 111", "index != 111", "index in [1, 37, 74, 111]",
    'model == "M7"', 'model != "M7"', 'model in ["M7", "M14", "no"]', 'model.startsWith("M1")',
    'serial >= "s50"', 'serial.size() == 4', "ecc", "index == ecc", "model == serial",
    'index == "GPU-100"', 'serial.endsWith("7") || index < 100', '!(model == "M21") && ecc',
]  # fmt: skip
MEMORY = [
    'compareTo(quantity("200")) >= 0', 'isLessThan(quantity("200000000001n"))',
    'isGreaterThan(quantity("1"))', "asApproximateFloat() > 100.5",
]  # fmt: skip


@pytest.mark.parametrize("asks_first", [True, False])
def test_many_distinct_values_are_decided_as_few_are(asks_first: bool) -> None:
    attribute, memory = f'device.attributes["{DRIVER}"].', f'device.capacity["{DRIVER}"].memory.'
    names_of = re.compile(r"\b(index|model|serial|ecc)\b")
    expressions = [names_of.sub(attribute + r"\1", text) for text in MANY]
    expressions += [memory + text for text in MEMORY]
    expressions.append(f'device.capacity["{DRIVER}"].cores.isLessThan(quantity("1"))')
    world = World()
    for expression in expressions if asks_first else ():
        world.fleet.masks(expression)
    world.devices = {f"gpu-{number}": _variety(number) for number in range(600)}
    world.fleet.put_all(world.devices.items())

    for expression in expressions:
        world.check(expression)
