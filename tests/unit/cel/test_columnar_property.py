"""Whatever happens to a fleet, its masks are what the exact evaluator says of each device."""

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.cel.columnar import Fleet
from dray.cel.columnar.columns import Mask
from dray.cel.device import DeviceView, Published
from dray.cel.environment import Environment
from dray.cel.errors import CelCompileError, CelEvaluationError
from dray.cel.evaluate import Program, compile
from dray.domain.devices import Version
from dray.domain.quantities import Quantity, parse_quantity

DRIVER, OTHER = "gpu.example.com", "net.example.com"
ATTRIBUTES = [
    "model", "ecc", "index", "version", "serial", f"{OTHER}/model", f"{OTHER}/rate",
]  # fmt: skip
CAPACITIES = ["memory", "cores", f"{OTHER}/bandwidth"]
STRINGS = ["", "A100", "H100", "a100-80", "16Gi", "1.2.3", "é"]
NUMBERS = [0, 1, 2, -1, 7, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
AMOUNTS = ["0", "1", "1500m", "1n", "16Gi", "17179869184", "80Gi", "7Ei", "9E", "-3", "0.1"]

STANDARD, WITH_LISTS = Environment(), Environment(list_attributes=True)

values: st.SearchStrategy[Published] = st.one_of(
    st.sampled_from(STRINGS),
    st.sampled_from(NUMBERS),
    st.booleans(),
    st.sampled_from(["1.2.3", "2.0.0", "1.2.3-rc.1"]).map(Version),
    st.sampled_from(["550.54.14", "10.0.0"]).map(Version),
)
lists: st.SearchStrategy[Published] = st.one_of(
    st.lists(st.sampled_from(STRINGS), max_size=3).map(tuple),
    st.lists(st.sampled_from(NUMBERS), max_size=3).map(tuple),
)
amounts: st.SearchStrategy[Quantity] = st.one_of(
    st.sampled_from(AMOUNTS).map(parse_quantity), st.just(Quantity(10**40))
)
breakage = st.sampled_from(["", "", "", "", "", "attribute x: unsupported attribute value"])
views = st.builds(
    DeviceView,
    st.sampled_from([DRIVER, DRIVER, OTHER]),
    st.dictionaries(st.sampled_from(ATTRIBUTES), st.one_of(*[values] * 9, lists)),
    st.dictionaries(st.sampled_from(CAPACITIES), amounts),
    st.booleans(),
    breakage,
)

domains = st.sampled_from([f'"{DRIVER}"', f'"{DRIVER}"', f'"{OTHER}"', '"none"', "device.driver"])
names = st.sampled_from(["model", "ecc", "index", "version", "serial", "rate"])
attributes = st.builds("device.attributes[{}].{}".format, domains, names)
capacities = st.builds(
    "device.capacity[{}].{}".format, domains, st.sampled_from(["memory", "cores", "bandwidth"])
)
strings = st.sampled_from([f'"{text}"' for text in STRINGS])
numbers = st.sampled_from(
    ["0", "1", "-1", "2", "7", "1.5", "-0.5", "2u", "9007199254740993", "9007199254740992.0",
     "9223372036854775807", "9.3e18"]
)  # fmt: skip
constants = st.one_of(strings, numbers, st.sampled_from(["true", "false"]))
quantities = st.sampled_from([f'quantity("{text}")' for text in AMOUNTS])
equality = st.sampled_from(["==", "!="])
order = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
method = st.sampled_from(["isGreaterThan", "isLessThan"])
text_test = st.sampled_from(
    ['startsWith("A")', 'endsWith("0")', 'contains("1")', 'matches("^[AH]1")']
)

single = st.one_of(
    st.builds("{} {} {}".format, attributes, order, numbers),
    st.builds("{} {} {}".format, attributes, equality, constants),
    st.builds("{} {} {}".format, constants, equality, attributes),
    st.builds("{} {} {}".format, numbers, order, attributes),
    st.builds("{} in [{}, {}]".format, attributes, strings, strings),
    st.builds("{} in [{}]".format, attributes, numbers),
    st.builds("has({})".format, attributes),
    st.builds("has({})".format, capacities),
    st.builds("has(device.attributes.{})".format, names),
    st.builds("{} in device.attributes[{}]".format, strings, domains),
    st.builds('"{}" in device.attributes[{}]'.format, names, domains),
    st.builds("{} in device.attributes".format, domains),
    attributes,
    st.builds("{}.{}({})".format, capacities, method, quantities),
    st.builds("{}.compareTo({}) {} {}".format, capacities, quantities, order, numbers),
    st.builds("{}.asApproximateFloat() {} {}".format, capacities, order, numbers),
    st.builds("{}.{}({})".format, attributes, method, quantities),
    st.builds('{}.{}(semver("1.3.0"))'.format, attributes, method),
    st.builds('{} == semver("1.2.3")'.format, attributes),
    st.builds("isQuantity({})".format, attributes),
    st.builds("quantity({}).{}({})".format, attributes, method, quantities),
    st.builds("{}.lowerAscii() {} {}".format, attributes, equality, strings),
    st.builds("{}.size() {} {}".format, attributes, order, numbers),
    st.builds("{}.major() {} {}".format, attributes, order, numbers),
    st.builds("{}.{}".format, attributes, text_test),
    st.builds("{}.includes({})".format, attributes, strings),
    st.builds("{} in {}".format, strings, attributes),
    st.builds("{}[0] == {}".format, attributes, strings),
    st.builds("{}.exists(x, x == {})".format, attributes, constants),
    st.builds("device.driver {} {}".format, equality, domains),
    st.sampled_from(["device.allowMultipleAllocations", "true", "false", "1 / 0 == 1"]),
)
several = st.one_of(
    st.builds("{} {} {}".format, attributes, equality, attributes),
    st.builds("{} + {} {} {}".format, attributes, attributes, order, numbers),
    st.builds("{}.sub({}).{}({})".format, capacities, capacities, method, quantities),
    st.builds("device.attributes[{}].exists(x, x == {})".format, domains, strings),
    st.builds("device.attributes[{}].all(k, v, v != {})".format, domains, constants),
    st.builds("device.attributes.exists_one(d, d == {})".format, domains),
    st.builds("device.capacity[{}].size() {} {}".format, domains, order, numbers),
    st.builds(
        'cel.bind(d, device.attributes[{}], has(d.ecc) ? d.ecc : "ecc" in d)'.format, domains
    ),
    st.builds(
        "device.attributes[{}].?{}.orValue({}) == {}".format, domains, names, strings, strings
    ),
    st.builds("device.attributes[?{}].?{}.hasValue()".format, domains, names),
    st.builds("device.attributes[{}] == device.attributes[{}]".format, domains, domains),
)
clauses = st.recursive(
    single | several,
    lambda inner: st.one_of(
        st.builds("({} || {})".format, inner, inner),
        st.builds("({} && {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
    ),
    max_leaves=5,
)
selectors = st.lists(clauses, min_size=1, max_size=4).map(" && ".join)


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


def _compiles(expression: str) -> bool:
    try:
        return all(compile(expression, one) for one in (STANDARD, WITH_LISTS))
    except CelCompileError:
        return False


environments = st.sampled_from([STANDARD, WITH_LISTS])
ids = st.integers(0, 9).map("gpu-{}".format)
steps = st.one_of(
    st.tuples(st.just("put"), ids, views),
    st.tuples(st.just("put"), ids, views),
    st.tuples(st.just("remove"), ids, st.none()),
    st.tuples(st.just("slice"), st.sampled_from("ab"), st.lists(views, max_size=4)),
    st.tuples(st.just("drop slice"), st.sampled_from("ab"), st.none()),
    st.tuples(st.just("ask"), st.integers(0, 3), st.none()),
    st.tuples(st.just("forget"), st.integers(0, 3), st.none()),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(selectors.filter(_compiles), min_size=4, max_size=4),
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


forms = st.sampled_from(
    [f'device.attributes["{DRIVER}"].{name} {{}}'.format for name in ("model", "index", "ecc")]
    + [f'device.attributes["{DRIVER}"].serial.size() {{}}'.format]
    + [f'device.capacity["{DRIVER}"].memory.asApproximateFloat() {{}}'.format]
)
amount_forms = st.sampled_from(
    [
        f'device.capacity["{DRIVER}"].memory.{{}}'.format,
        f'device.attributes["{DRIVER}"].model.{{}}'.format,
    ]
)
tails = st.one_of(
    st.builds("{} {}".format, order, numbers),
    st.builds("{} {}".format, equality, constants),
    st.builds("in [{}, {}]".format, strings, strings),
    st.builds("in [{}, {}]".format, st.sampled_from(["1", "2"]), st.sampled_from(["0", "7"])),
)
amount_tails = st.one_of(
    st.builds("{}({})".format, method, quantities),
    st.builds("compareTo({}) {} {}".format, quantities, order, st.sampled_from(["0", "1", "-1"])),
)
families = st.one_of(
    st.builds(lambda f, t: [f(x) for x in t], forms, st.lists(tails, min_size=6, max_size=20)),
    st.builds(
        lambda f, t: [f(x) for x in t],
        amount_forms,
        st.lists(amount_tails, min_size=6, max_size=20),
    ),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(families, st.lists(views, max_size=8), st.lists(views, max_size=8), st.data())
def test_clauses_that_differ_in_constants_keep_apart(
    expressions: list[str], before: list[DeviceView], after: list[DeviceView], data: st.DataObject
) -> None:
    world = World()
    kept = [expression for expression in expressions if _compiles(expression)]
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
@given(selectors.filter(_compiles), st.lists(views, max_size=25), st.booleans(), environments)
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
