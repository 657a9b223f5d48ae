"""The comparison with Kubernetes' allocator: a folder of scripts, which are not packages."""

from pathlib import Path

import pytest

ORACLE = Path(__file__).parents[3] / "conformance" / "oracle"


@pytest.fixture(scope="module")
def module(importing_from):
    """Import a module of the oracle's folder."""
    with importing_from(ORACLE) as module:
        yield module


@pytest.fixture(scope="module")
def asked(module):
    return list(module("allocation.cases").cases(1, 400, "1.36"))


@pytest.fixture(scope="module")
def differences(module):
    return module("allocation.differences")


@pytest.fixture(scope="module")
def faults(module):
    return module("allocation.validity").faults
