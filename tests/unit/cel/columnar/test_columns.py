"""Columns of values, and their codes spread over the slots."""

import numpy as np
import pytest

from dray.cel.columnar.columns import ABSENT, Column
from dray.cel.columnar.spreading import spread


@pytest.mark.parametrize("count", [255, 256, 300, 66_000])
def test_a_column_widens_as_values_come(count: int) -> None:
    column = Column(count)
    for slot in range(count):
        column.put(slot, f"value {slot}")

    assert [column.values[code] for code in column.codes] == [f"value {s}" for s in range(count)]


@pytest.mark.parametrize("count", [8, 100, 250, 300, 70_000])
@pytest.mark.parametrize("share", [0, 0.01, 0.4, 0.99, 1])
def test_codes_are_spread_over_the_slots_however_many_there_are(count: int, share: float) -> None:
    column = Column(count)
    column.begin([], list(range(count)), np.arange(count)[::-1] + 1)
    wanted = range(1, int(count * share) + 1)
    chosen = bytes(code in wanted for code in range(count + 1))

    found = spread(column, chosen, count)
    assert np.array_equal(found, np.isin(column.codes, list(wanted)))


def test_a_column_of_changing_values_does_not_grow() -> None:
    column = Column(4)
    for number in range(1000):
        for slot in range(4):
            column.put(slot, number * 4 + slot)
    column.clear(0)

    assert len(column.values) <= 6
    assert [column.values[code] for code in column.codes[1:]] == [3997, 3998, 3999]
    assert column.codes[0] == ABSENT
