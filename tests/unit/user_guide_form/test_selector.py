"""The generated selector: the user guide's seven clauses, guarded, and safe for any input."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.names import DRIVER
from dray.api.quantities import parse_quantity
from dray.cel.errors import CelEvaluationError
from dray.cel.eval.program import compile
from dray.cel.view import DeviceView
from dray.user_guide_form.dialect import translate
from dray.user_guide_form.selector import generated_selector, pool_selector

ATTRIBUTES = {
    "model": "A100",
    "pool_name": "prod-pool",
    "qos": "high",
    "phase": "Running",
    "used_by": "",
}
CAPACITY = {
    "tflops": parse_quantity("312"),
    "vram": parse_quantity("40Gi"),
    "virtual_tflops": parse_quantity("468"),
    "virtual_vram": parse_quantity("60Gi"),
}
GI = 2**30
SELECTOR = generated_selector("A100", "prod-pool", parse_quantity("200"), 32 * GI, "high")


def card(without=(), **changed):
    attributes = {k: v for k, v in {**ATTRIBUTES, **changed}.items() if k not in without}
    capacity = {k: v for k, v in CAPACITY.items() if k not in without}
    return DeviceView(DRIVER, attributes, capacity, allow_multiple_allocations=True)


def test_the_clauses_are_those_of_the_seed_in_its_order():
    clauses = [r.text for r in compile(SELECTOR).explain(card()) if not r.text.startswith("has(")]
    prefix = f'device.attributes["{DRIVER}"].'
    capacity = f'device.capacity["{DRIVER}"].'
    assert clauses == [
        prefix + 'model == "A100"',
        prefix + 'pool_name == "prod-pool"',
        capacity + 'tflops.compareTo(quantity("200")) >= 0',
        capacity + 'vram.compareTo(quantity("34359738368")) >= 0',
        prefix + 'qos == "high"',
        prefix + 'phase == "Running"',
        prefix + 'used_by == ""',
    ]


def test_a_card_that_has_everything_matches():
    assert compile(SELECTOR).matches(card()) is True


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "H100"},
        {"model": "a100"},
        {"pool_name": "other"},
        {"qos": "low"},
        {"phase": "Pending"},
        {"used_by": "nvidia-device-plugin"},
    ],
)
def test_one_other_attribute_is_enough_not_to_match(changed):
    assert compile(SELECTOR).matches(card(**changed)) is False


@pytest.mark.parametrize("missing", [*ATTRIBUTES, "tflops", "vram"])
def test_a_card_that_lacks_something_does_not_match_and_does_not_fail(missing):
    assert compile(SELECTOR).matches(card(without=[missing])) is False


def test_devices_of_other_drivers_do_not_match_and_do_not_fail():
    assert compile(SELECTOR).matches(DeviceView("gpu.example.com", {"model": "A100"})) is False
    assert compile(pool_selector("p")).matches(DeviceView("gpu.example.com")) is False


def test_a_request_is_compared_with_the_physical_card_where_the_pool_oversells():
    more_than_physical = generated_selector(pool="prod-pool", tflops=parse_quantity("400"))
    assert compile(more_than_physical).matches(card()) is False
    exactly_physical = generated_selector(tflops=parse_quantity("312"), vram_bytes=40 * GI)
    assert compile(exactly_physical).matches(card()) is True
    assert compile(generated_selector(vram_bytes=40 * GI + 1)).matches(card()) is False


def test_what_is_absent_adds_no_clause_but_health_and_owner_stay():
    bare = generated_selector()
    assert compile(bare).matches(card(without=["model", "qos", "pool_name", "tflops", "vram"]))
    assert not compile(bare).matches(card(phase="Pending"))
    assert "model" not in bare
    assert generated_selector(model="", qos="") == bare


def test_generated_selectors_are_valid_and_not_translated():
    assert translate(SELECTOR).expression == SELECTOR
    assert translate(pool_selector("p")).expression == pool_selector("p")


def test_a_fractional_request_stays_exact():
    assert 'quantity("1500m")' in generated_selector(tflops=parse_quantity("1.5"))


HOSTILE = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(
        ['A100" || true || "', "'", "\\", '\\"', '"""', "a\nb", '" == "" || "', "\x00", "é😀", "//"]
    ),
)


@settings(deadline=None)
@given(HOSTILE, HOSTILE, HOSTILE)
def test_what_users_write_can_not_change_the_meaning(model, pool, qos):
    program = compile(generated_selector(model, pool, None, None, qos))
    other = card(model=model + "x", pool_name=pool, qos=qos)
    same = card(model=model, pool_name=pool, qos=qos)
    assert program.matches(same) is True
    assert program.matches(other) is (model == "")
    assert compile(pool_selector(pool)).matches(card(pool_name=pool + "x")) is False


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*ATTRIBUTES, "tflops"]),
        st.sampled_from(["A100", "prod-pool", "high", "Running", "", 1, True]),
    )
)
def test_no_device_makes_a_generated_selector_fail(attributes):
    device = DeviceView(DRIVER, attributes, CAPACITY)
    try:
        compile(SELECTOR).matches(device)
    except CelEvaluationError as error:
        pytest.fail(str(error))
