"""Blocks of several expressions, and reads that are not selectors."""

import pytest

from dray.api.names import DRIVER
from dray.cel.errors import CelError, CelSyntaxError
from dray.user_guide_form.blocks import expressions, translate_block
from dray.user_guide_form.dialect import translate_value

A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'


def pieces(text):
    return [text[start:end] for start, end in expressions(text)]


def test_a_block_is_split_where_a_line_ends_an_expression():
    assert pieces("a && // x\nb\n\n// why\n(c ||\nd)\ne[\n1]\n == 2") == [
        "a && // x\nb",
        "(c ||\nd)",
        "e[\n1]\n == 2",
    ]
    assert pieces("a &&\nb") == ["a &&\nb"]


def test_comments_and_blank_lines_between_expressions_stay():
    first = '// first\ndevice.attributes["model"] == "a" // x\n\n\n'
    text = first + '// second\ndevice.driver == "b"\n//end'
    translation = translate_block(text)
    assert translation.expression == (
        f'// first\nhas({A}.model) && {A}.model == "a" // x\n\n\n'
        '// second\ndevice.driver == "b"\n//end'
    )
    assert translate_block(translation.expression).expression == translation.expression


@pytest.mark.parametrize(
    ("seed", "value"),
    [
        ('device.attributes["model"]', f"{A}.model"),
        ('device.capacity["vram"].AsApproximateFloat64()', f"{C}.vram.asApproximateFloat()"),
    ],
)
def test_one_read_is_translated_as_a_value_with_a_warning(seed, value):
    translation = translate_block(seed)
    assert translation.expression == value
    assert "no condition" in translation.warnings[0]
    again = translate_block(value)
    assert (again.expression, again.changes) == (value, ())


def test_only_one_read_is_a_value():
    with pytest.raises(ValueError, match="not one read"):
        translate_value('device.attributes["model"] == "a"')


def test_a_fault_is_named_with_its_place_in_the_block():
    with pytest.raises(CelError) as caught:
        translate_block('device.driver == "a"\n\n  device.attributes["quota"] == "b"')
    assert str(caught.value).startswith("3:20: 'quota'")
    assert str(caught.value).endswith(
        '\n |   device.attributes["quota"] == "b"\n | ...................^'
    )


@pytest.mark.parametrize("text", ["", "// nothing", "a b", "== !=", "a\nb c", '"no end'])
def test_what_is_not_a_block_of_expressions_is_refused(text):
    with pytest.raises(CelError):
        translate_block(text)
    if '"' in text:
        with pytest.raises(CelSyntaxError):
            expressions(text)
