"""The static check: what Kubernetes refuses at admission, with its words and position."""

import re

import pytest

from dray.cel.admission import admission
from dray.cel.check.static_check import check_selector
from dray.cel.environment import environment
from dray.cel.errors import CelTypeError, CelUnsupportedError
from dray.cel.syntax.parser import parse

D = "dra.example.com"
NAMES = {"$A": f'device.attributes["{D}"]', "$C": f'device.capacity["{D}"]'}


def full(text):
    """``$A`` and ``$C`` are the driver's attributes and capacities."""
    for short, path in NAMES.items():
        text = text.replace(short, path)
    return text


@pytest.mark.parametrize(
    "text",
    [
        "true",
        "device.driver == 'x' || device.allowMultipleAllocations",
        "$A.name",
        '$A["name"] > 0 && $A.name == "fish"',
        "cel.bind(dra, $A, dra.name)",
        "cel.bind(n, 1, cel.bind(n, 'a', n == 'a') && n == 1)",
        f'"{D}" in device.attributes && "n" in $C',
        "$C.name.isGreaterThan(quantity('1Ki')) || $C.n == quantity('1')",
        "$C.n.asApproximateFloat() >= 1 && $C.n.asInteger() < 2.5 && sign($C.n) <= 1u",
        "$A.version.isGreaterThan(semver('v0.0.1', true))",
        "device.attributes.exists_one(x, x == 'a')",
        "$A.all(k, k.startsWith('a'))",
        "$A.exists(k, v, v == 1)",
        "$A.?nope.orValue('z') == 'z' && has($A.nope)",
        "device.attributes[?'x'].?y.hasValue()",
        "[1, 2].map(x, x > 1, x * 2) == [4] && [1].filter(x, true).size() == 1",
        "{'a': 1, ?'b': optional.of(2)}.size() == 2 && {1: 'x'}[1] == 'x'",
        "[1, 2].transformMap(i, v, v * 2)[0] == 2",
        "type($A.n) == string ? $A.n.lowerAscii() == 'a' : $A.n == 1",
        "dyn(1) == 'a' && int('1') == 1 && string(1u) == '1' && b'a' < b'b'",
        "$A.x.split(',').join('-').find('a+') != ''",
        "optional.of(1).optMap(x, x + 1).value() == 2",
        "[,] == [] && {,} == {} && has(has($A.x))",
        "$C.n == null || device == null || $A.x == null",
        "[1].exists_one(i, v, i == v)",
        "[] == [1] || {}.size() == 0 || [[]] == [[1]]",
        "sets.contains(['a'], ['a']) && strings.quote('a') == 'b'",
        "$A.name.matches('^a') && 'a'.matches($A.pattern)",
    ],
)
def test_valid_selectors_pass(text):
    assert check_selector(parse(full(text)), full(text)).source == full(text)


REFUSED = {
    "1": (1, "must evaluate to bool or the unknown type, not int"),
    "dyn(true)": (4, "not dyn"),
    "semver('1.0.0')": (7, "not kubernetes.Semver"),
    "device.atributes": (7, "undefined field 'atributes' (nearest known name: 'attributes')"),
    "devise.driver == ''": (1, "undeclared reference to 'devise' (in container '') (nearest"),
    'device.attributes["model"] == "A100"': (
        28,
        "found no matching overload for '_==_' applied to '(map(string, any), string)'",
    ),
    "$C.vram >= 100": (41, "'_>=_' applied to '(kubernetes.Quantity, int)'"),
    "$C.vram.AsApproximateFloat64() >= 1": (
        61,
        "undeclared reference to 'AsApproximateFloat64' (in container '') "
        "(nearest known name: 'asApproximateFloat')",
    ),
    "1 == 1.0": (3, "applied to '(int, double)'"),
    "1 in [1.0]": (3, "applied to '(int, list(double))'"),
    "[1, 2.0].size() == 2": (5, "expected type 'int' but found 'double'"),
    "{'a': 1, 'b': 'c'}.size() == 2": (15, "expected type 'int' but found 'string'"),
    "quantity(8).isInteger()": (9, "'quantity' applied to '(int)'"),
    "[$A.x, 'a'].size() == 2": (42, "expected type 'any' but found 'string'"),
    "$C.n.sign() == 1": (42, "'sign' applied to 'kubernetes.Quantity.()'"),
    "{?'a': null}.size() == 1": (8, "expected type 'optional_type(null)' but found 'null'"),
    "dyn == dyn": (1, "undeclared reference to 'dyn'"),
    "[1].existsOne(x, x == 1)": (14, "undeclared reference to 'existsOne'"),
    "'a' + 1 == 'a'": (5, "'_+_' applied to '(string, int)'"),
    "!1": (1, "'!_' applied to '(int)'"),
    "true && 1": (9, "expected type 'bool' but found 'int'"),
    "1 ? true : false": (3, "'_?_:_' applied to '(int, bool, bool)'"),
    "$A.x.exists(y, true)": (37, "expression of type 'any' cannot be range"),
    "[1].all(x, x)": (12, "expected type 'bool' but found 'int'"),
    "[1].exists(x, true) && x == 1": (24, "undeclared reference to 'x'"),
    "device.driver.nope == 1": (14, "type 'string' does not support field selection"),
    "x{a: 1} == 1": (2, "undeclared reference to 'x'"),
    "'a'.matches('[')": (13, "invalid matches argument"),
    "'a'.find('[') == ''": (9, "program instantiation failed: error parsing regexp"),
    "uint(-1) == 0u": (5, "unsigned integer overflow"),
    "int('a') == 1": (4, "type conversion error from 'string' to 'int'"),
    "'a'.size(1) == 1": (9, "'size' applied to 'string.(int)'"),
    "url('x').getPort() == '' && device.nope": (35, "undefined field 'nope'"),
    "[int].all(t, t == int)": (14, "reference to undefined type: t"),
    "{null: 1}[null] == 1": (11, "invalid qualifier type: types.Null"),
    "'a'.reverse() == 'a'": (12, "found no matching overload for 'reverse'"),
    "string(dyn(['a'])) == ''": (7, "type conversion error from 'list' to 'string'"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_kubernetes_refuses_is_refused_with_its_reason(text):
    column, reason = REFUSED[text]
    with pytest.raises((CelTypeError, CelUnsupportedError)) as caught:
        check_selector(parse(full(text)), full(text))
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == (1, column)


def test_patterns_are_refused_where_re2_is_not_installed(monkeypatch):
    monkeypatch.setattr("dray.cel.check.validators.is_installed", lambda: False)
    with pytest.raises(CelUnsupportedError, match="'matches'"):
        check_selector(parse("device.driver.matches('without re2')"), "")


def _places(expression: str) -> list[str]:
    refused = admission(expression, environment("1.36", "new"))
    return re.findall(r"^(?:compilation failed: )?ERROR: <input>:(\S+): ", refused.text, re.M)


def test_all_type_errors_are_reported_in_the_order_of_the_text():
    expression = 'device.atributes.size() > 0 && [1, "a", true][nope] == 1 &&\n nor.x'
    assert _places(expression) == ["1:7", "1:47", "2:2"]


def test_elements_of_other_types_are_all_reported_in_maps_but_only_the_first_in_lists():
    lists, maps = '[1, "a", true].size() > 0', '{"k": 1, "x": "y", "z": true}.size() > 1'
    assert _places(f"{lists} && {maps}") == ["1:5", "1:44", "1:54"]


def test_at_most_a_hundred_errors_are_reported():
    refused = admission(" && ".join(["nope"] * 103), environment("1.36", "new"))
    assert refused.text.count("ERROR: ") == 100
    assert refused.text.splitlines()[-1] == "3 more errors were truncated"
