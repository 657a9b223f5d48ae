"""A fleet of three cards."""

import pytest
from tests.unit.cel.columnar.cards import view

from dray.cel.columnar import Fleet


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.put("a", view("80Gi", model="A100"))
    fleet.put("b", view("16Gi", model="T4"))
    fleet.put("c", view("8Gi"))
    return fleet
