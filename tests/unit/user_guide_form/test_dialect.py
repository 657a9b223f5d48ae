"""The user guide's dialect to DRA's: rows, guards, refusals, and what is left alone."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.names import DRIVER
from dray.api.quantities import parse_quantity
from dray.cel.environment import environment
from dray.cel.errors import CelError, CelEvaluationError, CelSyntaxError, CelTypeError
from dray.cel.eval.program import compile
from dray.cel.view import DeviceView
from dray.user_guide_form.dialect import Translation, translate
from dray.user_guide_form.rewriter import UserGuideDialectError
from dray.user_guide_form.vocabulary import ATTRIBUTES, CAPACITIES

A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'


VECTORS = Path(__file__).parents[2] / "vectors"
TAKEN = [
    vector
    for name in ("cel-sample.jsonl", "cel-recorded.jsonl")
    for vector in map(json.loads, (VECTORS / name).read_text("utf-8").splitlines())
    if vector["compile_error"] is None
]


def short(text):
    return text.replace(A, "$A").replace(C, "$C")


ROWS = {
    'device.attributes["model"] == "A100"': 'has($A.model) && $A.model == "A100"',
    "device.attributes['node_total_gpus'] >= 8": (
        "has($A.node_total_gpus) && $A.node_total_gpus >= 8"
    ),
    'device.capacity["vram"].AsApproximateFloat64() >= 100': (
        "has($C.vram) && $C.vram.asApproximateFloat() >= 100"
    ),
    f"{C}.vram.AsApproximateFloat64() >= 100": "$C.vram.asApproximateFloat() >= 100",
    'device.attributes["node_total_vram"].AsApproximateFloat64() > 1e9': (
        "has($A.node_total_vram) && isQuantity($A.node_total_vram) && "
        "quantity($A.node_total_vram).asApproximateFloat() > 1000000000.0"
    ),
    'device.attributes["node_total_gpus"].AsApproximateFloat64() > 1': (
        "has($A.node_total_gpus) && double($A.node_total_gpus) > 1"
    ),
    'device.capacity["vram"].isGreaterThan(quantity("1Gi"))': (
        'has($C.vram) && $C.vram.isGreaterThan(quantity("1Gi"))'
    ),
    'device.attributes["node_total_vram"].compareTo(quantity("1Gi")) > 0': (
        "has($A.node_total_vram) && isQuantity($A.node_total_vram) && "
        'quantity($A.node_total_vram).compareTo(quantity("1Gi")) > 0'
    ),
    'quantity("1Gi").isLessThan(device.attributes["node_total_vram"])': (
        "has($A.node_total_vram) && isQuantity($A.node_total_vram) && "
        'quantity("1Gi").isLessThan(quantity($A.node_total_vram))'
    ),
    # A negation needs what it negates.
    'device.attributes["model"] != "V100"': 'has($A.model) && $A.model != "V100"',
    '!(device.attributes["model"] == "V100")': 'has($A.model) && !($A.model == "V100")',
    # Guards stand before the smallest term, once, and before alternatives that share them.
    'device.attributes["model"] == "a" || device.attributes["qos"] == "b"': (
        'has($A.model) && $A.model == "a" || has($A.qos) && $A.qos == "b"'
    ),
    'device.attributes["model"] == "a" || device.attributes["model"] == "b"': (
        'has($A.model) && ($A.model == "a" || $A.model == "b")'
    ),
    'device.attributes["model"] != "a" && device.attributes["model"] != "b"': (
        'has($A.model) && $A.model != "a" && $A.model != "b"'
    ),
    'device.attributes["node_total_gpus"] > 4 ? device.attributes["qos"] == "a" : true': (
        'has($A.node_total_gpus) && ($A.node_total_gpus > 4 ? has($A.qos) && $A.qos == "a" : true)'
    ),
    '["a", "b"].exists(m, device.attributes["model"] == m)': (
        'has($A.model) && ["a", "b"].exists(m, $A.model == m)'
    ),
    'device.attributes["model"] in ["a", "b"]': 'has($A.model) && $A.model in ["a", "b"]',
    'device.attributes["uuid"].startsWith("GPU")': 'has($A.uuid) && $A.uuid.startsWith("GPU")',
    '"model" in device.attributes && device.attributes["model"] == "a"': (
        '"model" in $A && has($A.model) && $A.model == "a"'
    ),
    f'device.attributes["{DRIVER}/model"] == "a"': 'has($A.model) && $A.model == "a"',
    f'{A}.model == "a" && device.attributes["qos"] == "b"': (
        '$A.model == "a" && has($A.qos) && $A.qos == "b"'
    ),
}


@pytest.mark.parametrize("seed", ROWS)
def test_each_row_is_translated_compiles_and_stays(seed):
    translation = translate(seed)
    assert short(translation.expression) == ROWS[seed]
    assert translation.changes
    compile(translation.expression)
    assert translate(translation.expression).expression == translation.expression


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        f'{A}.model=="A100"   &&  // as written\n has({A}.qos)',
        'device.driver == "gpu.nvidia.com"',
        'device.attributes["gpu.nvidia.com"].type == "mig"',
        'device.attributes["gpu"].type == "mig"',
        '"gpu.nvidia.com" in device.attributes',
        'cel.bind(dra, device.attributes["dra.example.com"], dra.x > 1)',
        'device.attributes["x"].size() > 1 && device.attributes["x"].exists(k, k == "y")',
        'device.attributes[?"x"].?y.orValue(true)',
        'isIP("10.0.0.1")',
        f"{C}.quota.isGreaterThan(quantity('1'))",
        # Maps of two domains are compared, whatever their names remind of.
        'device.attributes["model"] == device.attributes["quota"]',
        'dyn(device.attributes["model"]) == "A100"',
        # Known to newer servers only.
        'device.attributes["a"].b.exists(x, x == "y")',
        "dyn(true)",
    ],
)
def test_valid_selectors_come_back_byte_for_byte(expression):
    translation = translate(expression)
    assert translation.expression == expression
    assert translation.changes == ()


@pytest.mark.parametrize("vector", TAKEN, ids=lambda vector: vector["id"])
def test_what_kubernetes_takes_comes_back_byte_for_byte(vector):
    server = environment(vector.get("k8s", "1.36"), "stored")
    assert translate(vector["expression"], server) == Translation(vector["expression"])


def test_the_servers_version_decides_what_is_valid():
    expression = 'device.attributes["a"].b.exists(x, x == "y")'
    with pytest.raises(CelTypeError, match="range of a comprehension"):
        translate(expression, environment("1.36"))
    assert translate(expression, environment("1.37")).expression == expression


def test_line_breaks_between_clauses_are_kept():
    text = 'device.attributes["model"] == "a" &&\ndevice.driver == "b"\n'
    assert short(translate(text).expression) == (
        'has($A.model) &&\n$A.model == "a" &&\ndevice.driver == "b"\n'
    )


def test_comments_around_the_expression_stay_and_lost_ones_are_reported():
    kept = translate('// mine\ndevice.attributes["model"] == "a"  // his\n')
    assert short(kept.expression) == '// mine\nhas($A.model) && $A.model == "a"  // his\n'
    assert not any("comments" in change for change in kept.changes)
    lost = translate('device.attributes["model"] // mine\n == "a"')
    assert any("comments" in change for change in lost.changes)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ('device.attributes["quota"] == "a"', "quota belongs to a namespace"),
        ('device.capacity["quota"].AsApproximateFloat64() > 1', "quota belongs to a namespace"),
        ('device.attributes["vram_limit"] == "1"', "limits are enforced while the pod runs"),
        ('device.attributes["modle"] == "a"', r"nearest known name: 'model'\); known attributes"),
        ('device.capacity["vrm"].AsApproximateFloat64() > 1', "'vram'.*known capacities: tflops"),
        ('device.attributes["vram"] == "1"', "'vram' is read from device.capacity"),
        ('device.capacity["model"].AsApproximateFloat64() > 1', "read from device.attributes"),
        ('device.capacity["tflops"] >= 100', "Quantity can't be compared directly"),
        ('100 <= device.capacity["tflops"]', "AsApproximateFloat64"),
        ('device.attributes["node_total_vram"] > 3', "string that holds a quantity"),
        ('device.attributes["model"].AsApproximateFloat64() > 3', "a string and not a quantity"),
        ('device.attributes["model"].compareTo(quantity("1")) > 0', "string and not a quantity"),
        ('device.attributes["node_total_gpus"].isLessThan(quantity("1"))', "is an int and not a q"),
        ('device.attributes["model"] > 5', r"'model' is a string: it can't be compared with 5"),
        ('"8" <= device.attributes["node_total_gpus"]', "'node_total_gpus' is an int: it can't"),
        ('device.attributes["model"]', "not a condition by itself"),
        ('!device.attributes["qos"] || true', "not a condition by itself"),
    ],
)
def test_what_the_seed_calls_wrong_is_refused_with_its_reason(expression, reason):
    with pytest.raises(UserGuideDialectError, match=reason) as caught:
        translate(expression)
    assert str(caught.value).endswith("^")


def test_text_in_neither_dialect_is_refused_in_place():
    with pytest.raises(CelSyntaxError):
        translate('device.attributes["model"] ==')
    with pytest.raises(CelTypeError) as caught:
        translate('device.attributes["model"] == "a" &&\n  device.nope')
    assert (caught.value.line, caught.value.column) == (2, 9)


def test_alternatives_of_conjunctions_get_a_warning():
    clause = '(device.attributes["model"] == "{}" && device.attributes["qos"] == "high")'
    many = " || ".join(clause.format(model) for model in "abc")
    assert "too complex" in translate(many).warnings[0]
    assert translate(clause.format("a")).warnings == ()


CLAUSES = st.sampled_from(
    [
        'device.attributes["model"] == "A100"',
        'device.attributes["model"] != "A100"',
        'device.attributes["node_total_gpus"] >= 8',
        'device.attributes["node_total_vram"].AsApproximateFloat64() > 100',
        'quantity("1").isLessThan(device.attributes["node_total_vram"])',
        'device.capacity["vram"].AsApproximateFloat64() >= 100',
        'device.attributes["qos"] in ["high", "low"]',
        "true",
    ]
)


def _combined(inner):
    return st.one_of(
        st.tuples(inner, inner).map(" && ".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} || {pair[1]})"),
        inner.map(lambda text: f"!({text})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})"),
    )


SELECTORS = st.recursive(CLAUSES, _combined, max_leaves=6)
DEVICES = st.builds(
    lambda attributes, capacity: DeviceView(
        DRIVER, attributes, {name: parse_quantity(text) for name, text in capacity.items()}
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.sampled_from(["A100", "H100"]),
            "node_total_gpus": st.integers(0, 16),
            "node_total_vram": st.sampled_from(["320Gi", "1", "many"]),
            "qos": st.sampled_from(["high", "medium"]),
        },
    ),
    st.fixed_dictionaries({}, optional={"vram": st.sampled_from(["40Gi", "1"])}),
)


def _unguarded(seed):
    """The same selector in DRA's dialect, as a careless person would translate it."""
    for name in ATTRIBUTES:
        read = f"{A}.{name}"
        seed = seed.replace(f'device.attributes["{name}"].AsA', f"quantity({read}).AsA")
        seed = seed.replace(
            f'isLessThan(device.attributes["{name}"])', f"isLessThan(quantity({read}))"
        )
        seed = seed.replace(f'device.attributes["{name}"]', read)
    for name in CAPACITIES:
        seed = seed.replace(f'device.capacity["{name}"]', f"{C}.{name}")
    return seed.replace("AsApproximateFloat64", "asApproximateFloat")


@settings(deadline=None)
@given(SELECTORS, DEVICES)
def test_translated_selectors_never_fail_and_select_what_was_meant(seed, device):
    selected = compile(translate(seed).expression).matches(device)
    try:
        meant = compile(_unguarded(seed)).matches(device)
    except CelEvaluationError:
        assert selected is False
        return
    # What the device lacks can only take a match away.
    assert meant or not selected
    if set(device.attributes) >= {"model", "node_total_gpus", "node_total_vram", "qos"}:
        complete = "vram" in device.capacity and device.attributes["node_total_vram"] != "many"
        assert selected == meant or not complete


@settings(deadline=None)
@given(SELECTORS)
def test_translation_is_idempotent(seed):
    once = translate(seed).expression
    assert translate(once).expression == once


@settings(deadline=None)
@given(st.text(alphabet='device.attributes["model"]=! &|()?:', max_size=60))
def test_any_text_translates_or_is_refused(text):
    try:
        translate(text)
    except CelError:
        return
