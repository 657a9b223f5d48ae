"""One device, one selector: results, errors, absorption, limits and explanations."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.devices import Capacity, Device, Version
from dray.api.quantities import parse_quantity
from dray.cel.device import view_of
from dray.cel.errors import CelEvaluationError, CelSyntaxError
from dray.cel.eval.program import compile, conjuncts
from dray.cel.syntax.parser import parse
from dray.cel.view import DeviceView

D = "dra.example.com"
DEVICE = DeviceView(
    D,
    {
        "model": "A100",
        "ecc": True,
        "numa": -3,
        f"{D}/index": 7,
        "driverVersion": Version("12.4.0-rc.1+build.5"),
        "other.example.com/name": True,
    },
    {"memory": parse_quantity("40Gi"), "cores": parse_quantity("1500m")},
)


def matches(text, device=DEVICE):
    for short, path in (("$A", "attributes"), ("$C", "capacity")):
        text = text.replace(short, f'device.{path}["{D}"]')
    return compile(text).matches(device)


@pytest.mark.parametrize(
    "text",
    [
        '$A.model == "A100" && $A["ecc"] && $A.numa == -3 && $A.index == 7',
        'device.attributes["other.example.com"].name && device.driver == "dra.example.com"',
        "device.allowMultipleAllocations == false",
        # An unknown domain is an empty map, is not in the map, and yet is found.
        '!("x" in device.attributes) && has(device.attributes.x)',
        'device.attributes[?"x"].hasValue() && !device.attributes[?"x"].?y.hasValue()',
        'device.attributes["x"].size() == 0 && device.attributes.size() == 2',
        '!has($A.nope) && !("nope" in $A) && $A.?nope.orValue("z") == "z"',
        # Errors are absorbed on either side.
        "$A.nope > 0 || true",
        "true || $A.nope > 0",
        "!($A.nope > 0 && false)",
        "!(false && $A.nope > 0)",
        "[1, 2].exists(x, x / (x - 1) == 2)",
        "![0, 1].all(x, 1 / x == 2)",
        # Numbers.
        "1 < 1.5 && 2u == 2u && 1u < 2 && 3 >= 3.0 && -1 < 0u",
        "7 / -2 == -3 && -7 % 3 == -1 && 7u / 2u == 3u && 2.5 * 2.0 == 5.0",
        "dyn(1) == 1u && dyn(1.0) == 1 && dyn(true) != 1 && dyn('1') != 1",
        "$A.numa != 'x' && $A.model != 1",
        "int(3.99) == 3 && int(-3.99) == -3 && uint('18446744073709551615') > 1u",
        "double('1.5') == 1.5 && string(1e6) == '1e+06' && string(0.5) == '0.5'",
        "string(123456.0) == '123456' && string(b'abc') == 'abc' && bool('true')",
        # Strings.
        "'é😀'.size() == 2 && b'é'.size() == 2 && 'Abc'.lowerAscii() == 'abc'",
        "'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'a'.charAt(1) == ''",
        "'hello'.indexOf('l') == 2 && 'hello'.lastIndexOf('l') == 3",
        "'tacocat'.substring(0, 4) == 'taco' && ' a '.trim() == 'a'",
        "'abab'.replace('a', 'x', 1) == 'xbab' && ['a', 'b'].join('-') == 'a-b'",
        "$A.model.matches('[0-9]{3}$') && 'abc123'.find('[0-9]+') == '123'",
        "'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a1b22'.findAll('[0-9]+', 1) == ['1']",
        # Lists and maps.
        "[1, 2, 3].map(x, x * 2).filter(y, y > 2) == [4, 6] && 2 in [1, 2]",
        "[1, 2, 2].isSorted() && [3, 1].sum() == 4 && [3, 1].min() == 1 && ['a', 'b'].max() == 'b'",
        "lists.range(3) == [0, 1, 2] && [1, 2, 3].slice(1, 2) == [2]",
        "[[1], [2]].flatten() == [1, 2] && [[[1]]].flatten(1) == [[1]]",
        "[2, 1].sort() == [1, 2] && [1, 1].distinct() == [1] && [1, 2].reverse() == [2, 1]",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [].indexOf(1) == -1",
        "!($A.driverVersion == null) && $A.driverVersion != 1 && !(1 / 0 in [])",
        "[1, 2, 3].exists_one(x, x > 2) && {'a': 1}.all(k, v, k == 'a' && v == 1)",
        "{true: 'a'}[true] == 'a' && {1: 'x'}[1] == 'x' && 'a' in {'a': 1}",
        "[1, ?optional.none(), ?optional.of(2)] == [1, 2] && {?'a': optional.none()} == {}",
        "[5, 6].transformMap(i, v, v * i) == {0: 0, 1: 6}",
        "[1, 2][?5].orValue(9) == 9 && [1, 2][?1].value() == 2",
        "optional.of(1).optMap(x, x + 1) == optional.of(2) && optional.of(1) != optional.none()",
        "optional.none().or(optional.of(3)).value() == 3",
        # Bindings, lazily and nested.
        "cel.bind(x, $A.nope, true || x == 1)",
        "cel.bind(x, [1, 2].map(y, y + 1), [x[0]].all(z, z == 2 && x.size() == 2))",
        # Quantities and versions.
        "$C.memory.compareTo(quantity('40960Mi')) == 0 && $C.memory == quantity('40Gi')",
        "$C.memory.isGreaterThan(quantity('39Gi')) && $C.cores.isLessThan(quantity('2'))",
        "$C.cores.asApproximateFloat() == 1.5 && !$C.cores.isInteger() && sign($C.memory) == 1",
        "$C.memory.asInteger() == 42949672960",
        "$C.cores.add(quantity('500m')).compareTo(quantity('2')) == 0",
        "$C.cores.sub(1) == quantity('0.5') && isQuantity('1e3') && !isQuantity('200K')",
        "$A.driverVersion.isLessThan(semver('12.4.0')) && $A.driverVersion.minor() == 4",
        "$A.driverVersion == semver('12.4.0-rc.1') && semver('v1.2', true) == semver('1.2.0')",
        "isSemver('1.2.3') && !isSemver('v1.2.3') && !isSemver('01.2.3')",
        "semver('1.0.0-alpha.9').compareTo(semver('1.0.0-alpha.10')) == -1",
        "semver('1.0.0-1').isLessThan(semver('1.0.0-a'))",
        "type($A.numa) == int && type(1u) == uint && type([]) == list && type(null) == null_type",
    ],
)
def test_selects(text):
    assert matches(text) is True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("$A.nope == 1", "no such key: nope"),
        ('device.attributes["x"].nope > 0', "no such key: nope"),
        ("$A.nope > 0 && true", "no such key: nope"),
        ("$A.model", "CEL result of type string could not be converted to bool"),
        ("$A.model > 1", r"no such overload: _>_\(string, int\)"),
        ("$A.model.isGreaterThan(quantity('1'))", "no such overload"),
        ("9223372036854775807 + $A.index > 0", "integer overflow"),
        ("-9223372036854775808 / $A.numa * -1 > 1 / 0", "division by zero"),
        ("$A.index % 0 == 1", "modulus by zero"),
        ("[1, 2][5] == 1", "index out of bounds: 5"),
        ("$A.?nope.value() == 1", r"optional.none\(\) dereference"),
        ("sign(quantity('200K')) == 1", "is not a quantity"),
        ("$C.cores.asInteger() == 1", "cannot convert value to integer"),
        ("semver('1.2').major() == 1", "is not a semantic version"),
        ("uint($A.numa) == 1u", "unsigned integer overflow"),
        ("[1, 2, 3].exists_one(x, x / 0 == 1)", "division by zero"),
        ("$A.driverVersion == 1", "no such overload"),
        ("[].min() == 1", "min called on empty list"),
        ("[1].slice(0, 2) == []", "list is length 1"),
        ("$A.model.substring(9) == ''", "index out of range: 9"),
        ("$A.model.matches($A.model + '[')", "error parsing regexp"),
    ],
)
def test_fails_where_kubernetes_fails(text, reason):
    with pytest.raises(CelEvaluationError, match=reason):
        matches(text)


def test_one_unusable_attribute_fails_every_selector():
    broken = view_of(D, Device("gpu-0", {"driverVersion": Version("v1.2")}))
    with pytest.raises(CelEvaluationError, match="attribute driverVersion"):
        compile("true").matches(broken)
    assert compile("true").explain(broken)[0].value is None


def test_unusable_capacity_fails_every_selector():
    broken = view_of(D, Device("gpu-0", capacity={"memory": Capacity("40GB")}))
    with pytest.raises(CelEvaluationError, match="capacity memory"):
        compile("true").matches(broken)


def test_written_and_implied_domains_are_the_same():
    short, long = DeviceView(D, {"a": 1}), DeviceView(D, {f"{D}/a": 1})
    assert matches("$A.a == 1", short)
    assert matches("$A.a == 1", long)


@pytest.mark.parametrize(
    "text",
    [
        "[1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c,"
        "[1,2,3,4,5,6,7,8,9,0].all(d, [1,2,3,4,5,6,7,8,9,0].all(e,"
        "[1,2,3,4,5,6,7,8,9,0].all(f, true))))))",
        "lists.range(100000).all(i, lists.range(100000).all(j, true))",
        "lists.range(9223372036854775807).size() == 1",
        "lists.range(5000).distinct().size() == 1",
        "cel.bind(a0, 'xxxxxxxx', " + "".join(
            f"cel.bind(a{i + 1}, a{i} + a{i}, " for i in range(60)
        ) + "a60 == ''" + ")" * 61,
        "cel.bind(a0, ['a'], " + "".join(
            f"cel.bind(a{i + 1}, a{i} + a{i}, " for i in range(60)
        ) + "a60.size() == 1" + ")" * 61,
        "cel.bind(a0, 'aa', " + "".join(
            f"cel.bind(a{i + 1}, a{i}.replace('a', a{i}), " for i in range(40)
        ) + "a40 == ''" + ")" * 41,
    ],
)  # fmt: skip
def test_evaluation_stops_at_the_step_limit(text):
    began = time.process_time()
    with pytest.raises(CelEvaluationError, match="actual cost limit exceeded"):
        matches(text)
    assert time.process_time() - began < 10


def test_deep_expressions_fail_cleanly():
    with pytest.raises(CelSyntaxError):
        compile("!" * 3 + "(" * 500 + "true" + ")" * 500)
    assert matches("true" + " && true" * 1_000)
    assert matches("(" * 150 + "true" + ")" * 150)
    assert matches("!(" * 80 + "true" + ")" * 80)


def test_programs_are_compiled_once():
    assert compile("device.driver == 'once'") is compile("device.driver == 'once'")


def test_explanation_has_each_clause_with_its_value_and_what_it_read():
    program = compile(
        f'device.attributes["{D}"].model == "H100" && '
        f'(device.attributes["{D}"].numa == 0 || device.attributes["{D}"]["index"] == 7) &&\n'
        f'device.attributes["{D}"].rack > 3'
    )
    first, second, third = program.explain(DEVICE)
    assert (first.text, first.value) == (f'device.attributes["{D}"].model == "H100"', False)
    assert first.read == {f'device.attributes["{D}"].model': "A100"}
    assert second.value is True
    assert second.text.startswith("(")
    assert list(second.read.values()) == [-3, 7]
    assert third.value is None
    assert third.error == "no such key: rack"
    assert third.read == {f'device.attributes["{D}"].rack': None}


def test_nested_conjunctions_are_clauses_too():
    assert len(conjuncts(parse("a && (b && c) && (d || e && f)"))) == 4


TERMS = st.sampled_from(["true", "false", "$A.nope > 0", "$A.ecc", "$A.model", "1 / 0 == 1"])
VALUE = {"true": True, "false": False, "$A.ecc": True}


@settings(deadline=None)
@given(st.lists(TERMS, min_size=1, max_size=6), st.booleans())
def test_a_chain_is_decided_by_one_term_or_fails_if_any_fails(terms, is_or):
    text = (" || " if is_or else " && ").join(terms)
    values = [VALUE.get(term) for term in terms]
    if is_or in values:
        assert matches(f"({text}) == {str(is_or).lower()}")
    elif None in values:
        with pytest.raises(CelEvaluationError):
            matches(text)
    else:
        assert matches(text) is not is_or
