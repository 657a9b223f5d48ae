"""What typical pods can use of a node: by hand, and against whole numbers of Python's own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.messages.decisions import Learned, TypicalPod
from dray_allocator.board.board import Board
from dray_allocator.board.source import Source
from dray_allocator.placement.fragmentation.landscape import Landscape
from dray_allocator.placement.fragmentation.nodes import state_of
from dray_allocator.placement.fragmentation.table import STRIDE, Table, code_of, uses_cards


def typical(cpu_milli: int, cards: int, *milli: int, gain: int = 0, waste: int = 0) -> TypicalPod:
    return TypicalPod(
        cpu_milli=cpu_milli, cards=cards, milli=milli, count=1, gain=gain, waste=waste
    )


def on(cpu_milli: int, *left: int, of_class: int = 0):
    return state_of(cpu_milli, [code_of(of_class, one) for one in left])


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
    found = Table(1, (SMALL, BIG, PAIR)).features([state])

    assert found[0].tolist() == [usable]
    assert found[1].tolist() == [wasted]


def test_a_class_that_a_pod_cannot_use_is_wasted_and_another_amount_counts():
    table = Table(2, (typical(1000, 1, 400, 0), typical(1000, 1, 500, 1000)))
    mixed = state_of(9000, [code_of(0, 1000), code_of(1, 1000)])

    usable, wasted = table.features([on(9000, 1000, of_class=1), mixed])

    assert usable.tolist() == [[0, 1000], [800, 2000]]
    assert wasted.tolist() == [[1000, 0], [1000, 0]]


def by_hand(state, pods):
    """The same with whole numbers only, card by card."""
    cpu, codes = state
    cards = [divmod(code, STRIDE) for code in codes]
    total = 0
    for pod in pods:
        idle = sum(left for _, left in cards)
        if not uses_cards(pod):
            total -= idle * pod.waste
            continue
        fit = [(c, left) for c, left in cards if 0 < pod.milli[c] <= left]
        each = [1 if pod.cards > 1 else left // pod.milli[c] for c, left in fit]
        held = sum(n * pod.milli[c] for n, (c, _) in zip(each, fit, strict=True))
        copies = sum(each) // pod.cards
        if copies:
            held = held * copies * pod.cards // sum(each)
            needed = copies * max(pod.cpu_milli, 1)
            total += pod.gain * (held if needed <= cpu else held * cpu // needed)
        runs = copies >= 1 and cpu >= max(pod.cpu_milli, 1)
        total -= pod.waste * (
            sum(left for c, left in cards if (c, left) not in fit) if runs else idle
        )
    return total


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
STATES = st.lists(
    st.builds(
        state_of,
        st.integers(0, 300_000),
        st.lists(st.builds(code_of, st.integers(0, 1), st.integers(0, 1000)), max_size=8),
    ),
    min_size=1,
    max_size=8,
)


def landscape_of(pods) -> Landscape:
    nothing = Source(*[None] * 4)  # type: ignore[arg-type]
    return Landscape(Board(nothing), Learned(version=1, classes=("a", "b"), pods=tuple(pods)), 1)


@settings(max_examples=200, deadline=None)
@given(PODS, STATES)
def test_worth_is_exact_whoever_adds_in_whatever_order(pods, states):
    expected = [by_hand(state, pods) for state in states]

    assert landscape_of(pods).worth_of(states) == expected
    assert landscape_of(pods[::-1]).worth_of(states[::-1]) == expected[::-1]


def test_the_largest_numbers_are_still_whole():
    pods = [typical(1, 1, 1, 1, gain=20_000_000_000 // 384, waste=10**6) for _ in range(384)]
    state = on(10**8, *[1000] * 32)

    landscape = landscape_of(pods)
    assert landscape.worth_of([state]) == [by_hand(state, pods)]
    assert abs(by_hand(state, pods)) < 2**53
    assert np.finfo(np.float64).nmant == 52
