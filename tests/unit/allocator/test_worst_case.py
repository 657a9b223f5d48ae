"""Claims with combinations without end get a reason within the default bounds."""

import pytest

from benchmarks.worst_case import INPUTS, Input, served
from dray.api import names

TRIED = "among the first 5000 tried: 1 of 1 node (a choice may exist, but there are too many"


@pytest.mark.parametrize(
    ("one", "placement", "outcome"),
    [
        (INPUTS[0], names.KUBERNETES_COMPATIBLE, f"no choice of devices {TRIED}"),
        (INPUTS[0], names.DEFAULT_PLACEMENT, "false is false: 32 of 32 devices"),
        (INPUTS[1], names.KUBERNETES_COMPATIBLE, f"no choice of devices {TRIED}"),
        (INPUTS[1], names.DEFAULT_PLACEMENT, f"no choice of 16 devices {TRIED}"),
    ],
)
def test_the_reason_names_the_bound_at_which_the_search_ended(
    one: Input, placement: str, outcome: str
) -> None:
    assert outcome in served(one, placement).outcome
