"""Every interleaving of small worlds: nothing is allocated twice, nothing void is carried out,
and a pod that is not placed has a reason. ``make explore`` searches the larger bounds."""

import pytest

from tools.model_checker.bounds import (
    GANG_CRASH_TIME,
    GANG_LAGGING_VOIDS,
    GANG_LAGGING_VOIDS_ONE,
    GANG_REPLACED_ONCE,
    SMALL,
    Bound,
    PodKind,
)
from tools.model_checker.search import explore

TWO_FOR_ONE = Bound("two for one device", (PodKind("P", (312,)), PodKind("Q", (1,))), ("n0",))


BOUNDS = [*SMALL, GANG_LAGGING_VOIDS, GANG_LAGGING_VOIDS_ONE, GANG_REPLACED_ONCE, GANG_CRASH_TIME]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
def test_nothing_is_wrong_in_any_state(bound: Bound) -> None:
    outcome = explore(bound)

    assert not outcome.violation, outcome.report()
    assert outcome.complete
    assert outcome.ends


def test_the_same_bound_is_searched_alike_every_time() -> None:
    first, again = explore(TWO_FOR_ONE), explore(TWO_FOR_ONE)

    assert (first.states, first.steps, first.ends) == (again.states, again.steps, again.ends)


def test_a_search_that_ends_at_its_limit_does_not_pass_for_a_whole_one() -> None:
    outcome = explore(SMALL[0], most_states=100)

    assert not outcome.complete
    assert "NOT COMPLETE" in outcome.report()


def test_a_pod_that_fits_nowhere_has_a_reason_and_the_other_is_placed() -> None:
    outcome = explore(
        Bound("two for one device", (PodKind("P", (312,)), PodKind("Q", (1,))), ("n0",))
    )

    assert not outcome.violation, outcome.report()
