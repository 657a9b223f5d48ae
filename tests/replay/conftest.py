"""The committed recordings, and the run that the first one is of."""

from pathlib import Path

import pytest

from tools.recordings.allocators import Simulation, simulate

RECORDINGS = Path(__file__).parent / "recordings"


@pytest.fixture(scope="session")
def recording() -> Path:
    """Two replicas through conflicts, waits, voidings, deletions, restarts and a lost log."""
    return RECORDINGS / "two-replicas.jsonl.gz"


@pytest.fixture(scope="session")
def groups() -> Path:
    """Two replicas that decide gangs, which lose pods and get successors."""
    return RECORDINGS / "groups.jsonl.gz"


@pytest.fixture(scope="session")
def four_services() -> Path:
    """All services' journals, with pods and claims that come and go among kills and pauses."""
    return RECORDINGS / "four-services.jsonl.gz"


@pytest.fixture(scope="session")
def simulation() -> Simulation:
    """The run that the recording of two replicas is of."""
    return simulate()
