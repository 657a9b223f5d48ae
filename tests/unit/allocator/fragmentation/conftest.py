"""The score's formula by whole numbers of Python's own."""

import pytest

from dray_allocator.scoring.fragmentation.table import STRIDE, uses_cards


@pytest.fixture(scope="session")
def by_hand():
    """The worth of a node: ``state``, its free cpu and its cards' codes; ``pods``, typical ones."""
    return worth_of


def worth_of(state, pods):
    """The worth of a node with whole numbers only, card by card."""
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
