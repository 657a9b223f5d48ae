"""A selector in words, clause by clause."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.quantities import parse_quantity
from dray.cel.description import describe
from dray.cel.eval.program import compile
from dray.cel.syntax.literals import quoted
from dray.cel.syntax.parser import parse
from dray.user_guide_form.selector import generated_selector

A = 'device.attributes["gpu.example.com"]'
C = 'device.capacity["gpu.example.com"]'
B = 'device.attributes["other.example.com"]'
DESCRIBED = {
    f'{A}.model == "A100" && {C}.vram.compareTo(quantity("40Gi")) >= 0': (
        "model is A100, and vram is at least 40Gi"
    ),
    f'has({A}.model) && {A}.model != "L4"': "model is not L4",
    f'"model" in {A} && {A}.model in ["A100", "H100"]': "model is one of A100, H100",
    f'!({A}.model in ["A100"])': "model is none of A100",
    f"has({A}.ecc) && !{A}.ecc": "ecc is false",
    f'has({A}.ecc) && !("numa" in {A})': "ecc is published, and numa is not published",
    f"7 < {A}.count && 0 >= {C}.vram.compareTo(quantity('42949672960'))": (
        "count is more than 7, and vram is at most 40Gi"
    ),
    f'{A}.ver.isGreaterThan(semver("1.2.3")) && !{C}.vram.isLessThan(quantity("1Gi"))': (
        "ver is more than 1.2.3, and vram is at least 1Gi"
    ),
    f'{A}.model.startsWith("A") || {A}.model.lowerAscii() == "h100"': (
        "either model starts with A or model in lower case is h100"
    ),
    f'!({A}.a == "x" || {A}.b == "y")': "a is not x and b is not y",
    f'{A}.?zone.orValue("") == "eu 1"': 'zone (else empty) is "eu 1"',
    f'{A}.tags.includes("a") && 3 in {A}.numbers': "tags includes a, and numbers includes 3",
    f"{A}.a == 1 && {B}.a == 2": "a of gpu.example.com is 1, and a of other.example.com is 2",
    f'cel.bind(d, {A}, d.model == "A100" && d.count > 1)': "model is A100 and count is more than 1",
    "device.attributes[device.driver].model == 'A100'": "model is A100",
    'device.driver == "gpu.example.com"': "driver is gpu.example.com",
    "true": "any device",
}
AS_WRITTEN = [
    f"{A}.a + 1 > 3",
    "[1, 2].all(x, x > 0)",
    f'{A}.model in [{A}.other, "x" + "y"]',
    f'cel.bind(v, {A}.a + "x", v == "y")',
]


@pytest.mark.parametrize("text", DESCRIBED)
def test_a_selector_is_described_in_words(text):
    reported = describe(parse(text))

    assert reported.replace(", and ", " and ") == DESCRIBED[text].replace(", and ", " and ")


@pytest.mark.parametrize("text", AS_WRITTEN)
def test_a_clause_without_words_is_given_as_written(text):
    assert describe(parse(text)) == text


def test_the_selector_of_annotations_is_described_without_its_guards():
    selector = generated_selector("A100", "prod", parse_quantity("100"), 40 * 2**30, "high")

    assert compile(selector).words == (
        "model is A100, and pool_name is prod, and tflops is at least 100, and vram is at least "
        "40Gi, and qos is high, and phase is Running, and used_by is empty"
    )


@given(st.text(max_size=20))
def test_what_a_user_wrote_can_not_look_like_other_words(written):
    reported = describe(parse(f"{A}.model == {quoted(written)}"))

    assert reported.startswith("model is ")
    assert " and " not in reported.removeprefix("model is ") or '"' in reported
