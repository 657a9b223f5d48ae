"""The least key is found, whatever was written in between."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dray_allocator.nodes.index import BLOCK, NONE, Keys

ROWS = 3 * BLOCK
rows = st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, ROWS - 1])
writes = st.tuples(st.sampled_from(["put", "together", "all", "ask"]), rows, st.integers(0, 5))


@given(st.lists(writes, max_size=40))
def test_the_least_key_is_that_of_all_rows(steps):
    keys = Keys()
    keys.grow(ROWS)
    for what, row, value in steps:
        key = value or NONE
        if what == "put" and key != keys.at[row]:
            keys.put(row, key)
        elif what == "together":
            at = np.array([row, 2], np.intp)
            keys.all[at] = key
            keys.written(at)
        elif what == "all":
            keys.all[:] = key
            keys.all_written()
        elif what == "ask":
            check(keys)
    check(keys)


def test_rows_that_are_added_have_no_key_and_take_none_away():
    keys = Keys()
    keys.put(3, 7)
    keys.grow(ROWS)
    assert keys.least() == (7, 3)
    keys.put(ROWS - 1, 6)
    assert keys.least() == (6, ROWS - 1)
    keys.put(ROWS - 1, NONE)
    assert keys.least() == (7, 3)


def check(keys):
    key, row = keys.least()
    assert key == min(keys.at)
    assert row == -1 if key == NONE else keys.at[row] == key
