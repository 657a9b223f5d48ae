"""The committed recording, and the script that makes it."""

import runpy
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def recording() -> Path:
    """Two replicas through conflicts, waits, voidings, deletions, restarts and a lost log."""
    return HERE / "recordings" / "two-replicas.jsonl.gz"


@pytest.fixture(scope="session")
def script() -> dict[str, Any]:
    """The names that the script defines."""
    return runpy.run_path(str(HERE / "make_recording.py"))


@pytest.fixture(scope="session")
def simulation(script: dict[str, Any]) -> Any:
    """The run that the committed recording is of."""
    return script["simulate"]()
