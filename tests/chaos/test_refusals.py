"""Requests about one object that are answered in one way, for ever, keep nobody else waiting.

Each test plays one kind of request with one answer, among the pods of others, while users and
administrators do what they do. ``DRAY_CHAOS_SEEDS=500`` plays all of them, and any seed of
``test_seeds`` may draw one together with all other faults.
"""

import os

import pytest

from tools.simulation.fault_injector import CALM
from tools.simulation.refusals import KINDS, Case, cases
from tools.simulation.run import Size, simulate

PER_SEED = 2
"""Cases for each seed that ``test_seeds`` plays; at least every kind of request once."""
CASES = cases()[: max(len(KINDS), PER_SEED * int(os.environ.get("DRAY_CHAOS_SEEDS", "12")))]
FIRST = int(os.environ.get("DRAY_CHAOS_FIRST", "0"))
TRIES = 8
"""Seeds until the request that is refused comes up."""
SHORT, WHOLE = 400, 100_000
"""How many lines of its story a failed seed shows."""


@pytest.mark.parametrize(
    ("number", "case"),
    [pytest.param(number, case, id=str(case)) for number, case in enumerate(CASES)],
)
def test_a_refusal_of_one_object_delays_no_other(number: int, case: Case) -> None:
    one = os.environ.get("DRAY_CHAOS_SEED")
    first = FIRST + number
    seeds = [int(one)] if one else range(first, first + 1000 * TRIES, 1000)
    for seed in seeds:
        size = Size(pods=8, faults=2, seconds=22.0, only=CALM, case=case)
        outcome = simulate(seed, size, keep=WHOLE if one else SHORT)
        assert not outcome.failures, outcome.report()
        if outcome.counts.get(f"answered: {case}"):
            return
    pytest.fail(f"in seeds {', '.join(map(str, seeds))} nobody made such a request: {case}")
