"""Devices and selectors of every form, for property tests."""

from hypothesis import strategies as st

from dray.cel.device import DeviceView, Published
from dray.cel.environment import Environment
from dray.cel.errors import CelCompileError
from dray.cel.evaluate import compile
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


def compiles(expression: str) -> bool:
    """Whether every server takes the expression."""
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
