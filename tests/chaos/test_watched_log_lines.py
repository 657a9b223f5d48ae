"""The log lines that the simulation watches for are those that services write."""

from pathlib import Path

import pytest

from tools.simulation.administrators import BUDGET_ALARMS
from tools.simulation.trace import ALARMS, ENDINGS

ROOT = Path(__file__).parents[2]
SOURCES = "".join(path.read_text("utf-8") for path in (ROOT / "services").rglob("*.py"))


@pytest.mark.parametrize("line", [*ALARMS, *ENDINGS, *BUDGET_ALARMS])
def test_a_service_writes_it(line: str) -> None:
    assert line in SOURCES
