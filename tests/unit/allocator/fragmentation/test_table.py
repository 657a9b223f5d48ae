"""What typical pods can use of a node: by hand, and against whole numbers of Python's own."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.messages.decisions import TypicalPod
from dray_allocator.scoring.fragmentation.ample_cpu import AmpleCpu
from dray_allocator.scoring.fragmentation.table import STRIDE, NodeStateTable, code_of


def typical(cpu_milli: int, cards: int, *milli: int, gain: int = 0, waste: int = 0) -> TypicalPod:
    return TypicalPod(
        cpu_milli=cpu_milli, cards=cards, milli=milli, count=1, gain=gain, waste=waste
    )


def on(cpu_milli: int, *left: int, of_class: int = 0):
    return cpu_milli, tuple(code_of(of_class, one) for one in left)


def summed(table, states):
    """The sums of nodes in these states, and their free cpu."""
    cards = [codes or (0,) for _, codes in states]
    count = np.array([len(codes) for codes in cards])
    codes = np.array([code for some in cards for code in some], np.int64)
    return table.sums(codes, np.cumsum(count) - count), np.array([cpu for cpu, _ in states])


def wasted_of(pod, state):
    """Idle milli that a copy of the pod can't use: what it costs where nothing else counts."""
    table = NodeStateTable(len(pod.milli), [msgspec.structs.replace(pod, waste=1)])
    return -table.worth(*summed(table, [state])).item()


SMALL, BIG, PAIR = typical(1000, 1, 400), typical(4000, 1, 700), typical(2000, 2, 1000)


@pytest.mark.parametrize(
    ("state", "usable", "wasted"),
    [
        # Two idle cards: two small pods each, one big one each, one pair on both.
        (on(64_000, 1000, 1000), [1600, 1400, 2000], [0, 0, 0]),
        # 600 and 300 are left: one small pod, nobody else.
        (on(64_000, 600, 300), [400, 0, 0], [300, 900, 900]),
        # Three small pods' cpu, half a big one's (half of 1400 and so on: cpu counts in parts).
        (on(3000, 1000, 1000), [1200, 1050 * 2 // 4, 2000], [0, 2000, 0]),
        (on(500, 1000), [200, 87, 0], [1000, 1000, 1000]),
        (on(0, 1000, 1000), [0, 0, 0], [2000, 2000, 2000]),
        (on(64_000), [0, 0, 0], [0, 0, 0]),
    ],
)
def test_usable_and_wasted_milli(state, usable, wasted):
    table = NodeStateTable(1, (SMALL, BIG, PAIR))

    assert table.usable(*summed(table, [state])).tolist() == usable
    assert [wasted_of(pod, state) for pod in (SMALL, BIG, PAIR)] == wasted


def test_a_class_that_a_pod_cannot_use_is_wasted_and_another_amount_counts():
    one, other = pods = typical(1000, 1, 400, 0), typical(1000, 1, 500, 1000)
    table = NodeStateTable(2, pods)
    single, mixed = on(9000, 1000, of_class=1), (9000, (code_of(0, 1000), code_of(1, 1000)))

    assert table.usable(*summed(table, [single])).tolist() == [0, 1000]
    assert table.usable(*summed(table, [mixed])).tolist() == [800, 2000]
    assert [wasted_of(pod, single) for pod in pods] == [1000, 0]
    assert [wasted_of(one, mixed), wasted_of(other, mixed)] == [1000, 0]


MILLI = st.sampled_from((0, 1, 90, 333, 400, 500, 810, 1000))
PODS = st.lists(
    st.builds(
        lambda cpu, cards, milli, gain, waste: typical(cpu, cards, *milli, gain=gain, waste=waste),
        st.integers(0, 200_000),
        st.sampled_from((0, 1, 1, 1, 2, 4, 8)),
        st.tuples(MILLI, MILLI),
        st.integers(0, 40_000_000),
        st.integers(0, 1_000_000),
    ),
    min_size=1,
    max_size=12,
)
CODES = st.lists(
    st.builds(code_of, st.integers(0, 1), st.sampled_from((0, 1, 90, 399, 500, 810, 1000))),
    max_size=8,
).map(tuple)
STATES = st.lists(st.tuples(st.integers(0, 300_000), CODES), min_size=1, max_size=8)


@settings(max_examples=200, deadline=None)
@given(PODS, STATES)
def test_worth_is_exact_in_any_order_of_addition(by_hand, pods, states):
    expected = [by_hand(state, pods) for state in states]
    table, turned = NodeStateTable(2, pods), NodeStateTable(2, pods[::-1])

    assert table.worth(*summed(table, states)).tolist() == expected
    assert turned.worth(*summed(turned, states[::-1])).tolist() == expected[::-1]


@settings(max_examples=200, deadline=None)
@given(PODS, st.tuples(st.integers(0, 300_000), CODES), st.integers(0, 1000))
def test_where_cpu_is_ample_no_pod_needs_a_look(by_hand, pods, state, taken):
    ample = AmpleCpu(NodeStateTable(2, pods))
    cpu, codes = state

    found = ample.worth_of(codes, cpu)

    assert found in (None, by_hand(state, pods))
    assert ample.worth_of(codes, 10**9) == by_hand((10**9, codes), pods)
    for code in codes if found is not None else ():
        less = code - min(code % STRIDE, taken)
        at = codes.index(code)
        changed = by_hand((cpu, (*codes[:at], less, *codes[at + 1 :])), pods)
        assert ample.worth_with(codes, code, less) == changed
        if ample.is_by_card:
            assert found + ample.gain(code, less) == changed


def test_the_largest_numbers_are_still_whole(by_hand):
    pods = [typical(1, 1, 1, 1, gain=20_000_000_000 // 384, waste=10**6) for _ in range(384)]
    state = on(10**8, *[1000] * 32)
    table = NodeStateTable(2, pods)

    assert table.worth(*summed(table, [state])).tolist() == [by_hand(state, pods)]
    assert abs(by_hand(state, pods)) < 2**53
    assert np.finfo(np.float64).nmant == 52


def test_a_pod_that_asks_for_more_cpu_than_64_bits_hold_makes_no_cpu_ample():
    pods = [typical(10**23, 1, 500, 500)]
    state = on(10**6, 1000)
    ample = AmpleCpu(NodeStateTable(2, pods))

    assert ample.worth_of(state[1], state[0]) is None
