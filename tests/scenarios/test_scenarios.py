"""Each scenario through the pure decisions of webhook, claim-controller and allocator."""

import pytest
from tests.scenarios.expectations import check
from tests.scenarios.objects import Scenario, scenarios
from tests.scenarios.pure import PureCluster

ALL = scenarios()


@pytest.mark.parametrize("scenario", ALL, ids=[one.name for one in ALL])
def test_a_scenario_ends_as_it_says(scenario: Scenario) -> None:
    cluster = PureCluster(scenario)
    for number, step in enumerate(scenario.steps):
        if (expected := step.get("expect")) is None:
            cluster.do(step)
        else:
            assert check(cluster, expected) == [], f"step {number} of {scenario.name}"
    assert cluster.allocator.oversold() == []


def test_scenarios_have_names_words_and_sources() -> None:
    names = [one.name for one in ALL]
    assert len(set(names)) == len(names)
    assert all(one.says and one.source for one in ALL)
    assert all("expect" in one.steps[-1] for one in ALL)
