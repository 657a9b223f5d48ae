"""Quantities against what apimachinery's resource.Quantity says of the same texts."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.quantities import (
    NANO,
    InvalidQuantityError,
    Quantity,
    parse_quantity,
    plain_number,
    quantity_of,
    readable_quantity,
    rounded,
)


@pytest.mark.parametrize(
    ("text", "value", "milli", "canonical"),
    [
        ("0", 0, 0, "0"),
        ("0Gi", 0, 0, "0"),
        ("100", 100, 100_000, "100"),
        ("1500m", 2, 1500, "1500m"),
        ("1.5", 2, 1500, "1500m"),
        ("0.5", 1, 500, "500m"),
        (".5", 1, 500, "500m"),
        ("1.", 1, 1000, "1"),
        ("+1", 1, 1000, "1"),
        ("-0.5", -1, -500, "-500m"),
        ("-1", -1, -1000, "-1"),
        ("1k", 1000, 1_000_000, "1k"),
        ("1e3", 1000, 1_000_000, "1k"),
        ("1E3", 1000, 1_000_000, "1k"),
        ("12e-1", 2, 1200, "1200m"),
        ("1E", 10**18, 10**21, "1E"),
        ("1Ei", 2**60, 2**60 * 1000, "1Ei"),
        ("16Gi", 16 * 2**30, 16 * 2**30 * 1000, "16Gi"),
        ("1024Mi", 2**30, 2**30 * 1000, "1Gi"),
        ("1.5Gi", 3 * 2**29, 3 * 2**29 * 1000, "1536Mi"),
        ("0.5Ki", 512, 512_000, "512"),
        ("40G", 40 * 10**9, 40 * 10**12, "40G"),
        ("100n", 1, 1, "100n"),
        ("1u", 1, 1, "1u"),
        # Beyond nano it is rounded away from zero.
        ("0.1n", 1, 1, "1n"),
        ("1.0000000001", 2, 1001, "1000000001n"),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(
    text: str, value: int, milli: int, canonical: str
) -> None:
    quantity = parse_quantity(text)
    assert quantity.value == value
    assert quantity.milli == milli
    assert str(quantity) == canonical


@pytest.mark.parametrize(
    "text",
    [
        *("", " 1", "1 ", "1Mi ", ".", "-", "1KI", "1mi", "1K", "1e", "1e3Gi", "1.2.3", "1,5"),
        *("0x1", "Gi", "NaN", "inf", "１", "1\n", "1" * 65),
    ],
)
def test_what_kubernetes_refuses_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(InvalidQuantityError, match="is not a quantity") as caught:
        parse_quantity(text)
    assert caught.value.text == text


quantities = st.builds(Quantity, nano=st.integers(-(10**24), 10**24), binary=st.booleans())


@given(quantities)
def test_a_quantity_written_is_read_back_equal(quantity: Quantity) -> None:
    assert parse_quantity(str(quantity)) == quantity


@given(quantities, quantities)
def test_order_and_sums_are_exact(left: Quantity, right: Quantity) -> None:
    assert (left < right) == (left.nano < right.nano)
    assert (left + right) - right == left
    assert (left == right) == (hash(left) == hash(right) and left.nano == right.nano)


@given(st.integers(-(10**12), 10**12), st.sampled_from(["", "k", "M", "m", "Ki", "Gi"]))
def test_the_suffix_is_a_factor(number: int, suffix: str) -> None:
    factor = {"": 1, "k": 10**3, "M": 10**6, "m": Fraction(1, 1000), "Ki": 2**10, "Gi": 2**30}
    assert parse_quantity(f"{number}{suffix}").nano == number * factor[suffix] * 10**9


@given(quantities)
def test_rounding_is_away_from_zero_to_whole_units(quantity: Quantity) -> None:
    exact = Fraction(quantity.nano, 10**9)
    assert abs(quantity.value) >= abs(exact)
    assert abs(quantity.value) - abs(exact) < 1
    assert abs(quantity.milli) - abs(exact * 1000) < 1


def test_a_number_of_units_is_a_quantity() -> None:
    assert quantity_of(3) == parse_quantity("3")
    assert parse_quantity("2").approximate == 2.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10269850m", "10269.85"),
        ("98900m", "98.9"),
        ("247250m", "247.25"),
        ("-10269850m", "-10269.85"),
        ("100k", "100000"),
        ("0", "0"),
        ("1n", "0.000000001"),
        ("16Gi", "16Gi"),
        ("80G", "80G"),
        ("nonsense", "nonsense"),
    ],
)
def test_people_read_plain_numbers(text: str, expected: str) -> None:
    assert readable_quantity(text) == expected


@pytest.mark.parametrize(
    ("nano", "binary", "expected"),
    [
        (169_651_208_176 * NANO, True, "158Gi"),
        (10_269_850_000_000, False, "10269.85"),
        (10_269_855_000_000, False, "10269.86"),
        (-10_269_850_000_000, False, "-10269.85"),
        (4992 * NANO, False, "4992"),
        (1280 * 2**30 * NANO, True, "1280Gi"),
        (123_456_789 * NANO, False, "123.46M"),
        (0, True, "0"),
    ],
)
def test_sums_are_rounded_to_hundredths(nano: int, binary: bool, expected: str) -> None:
    assert rounded(nano, binary=binary) == expected


@given(st.integers(min_value=-(10**24), max_value=10**24))
def test_a_plain_number_is_exact(nano: int) -> None:
    assert parse_quantity(plain_number(nano)).nano == nano
