"""What holds for all tests."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

from dray_sandbox.paths import FOLDER_VARIABLE, checkout

# Deadlines of examples, and of what draws them, measure how busy the machine is, not the code.
settings.register_profile("dray", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dray")

# Histories judge themselves: where one fails, it should say what it saw.
pytest.register_assert_rewrite("tests.unit.allocator.histories")


def pytest_configure(config: pytest.Config) -> None:
    """Two sessions in one checkout start stacks of the same names: each has a folder of its own,
    which the next session removes."""
    if FOLDER_VARIABLE in os.environ:  # xdist's workers have that of their session
        return
    folder = checkout() / ".cache" / "dray" / "tests"
    for left in folder.glob("*"):
        if not _runs(int(left.name)):
            for nodes in left.glob("*/n"):  # a link, if the path is too long for sockets
                shutil.rmtree(nodes.resolve(), ignore_errors=True)
            shutil.rmtree(left, ignore_errors=True)
    os.environ[FOLDER_VARIABLE] = str(folder / str(os.getpid()))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
