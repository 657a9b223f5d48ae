"""How a test is left out on a server of which it says nothing: here alone, and never everywhere."""

import pytest

from dray_sandbox.controlplane.build import DEFAULT_MINOR, wanted_minor


def only_where(holds: bool, otherwise: str) -> None:
    """Skip the test where ``holds`` is false, telling why not there, and where it runs.

    On the default minor, which `.ci/run` takes, and for which the sandbox stands, it fails instead
    (and ``make conformance`` takes any skip there for a difference): so what is left out on another
    minor is known to run.
    """
    if holds:
        return
    if (minor := wanted_minor()) == DEFAULT_MINOR:
        pytest.fail(f"left out on {minor} it would run nowhere: {otherwise}")
    pytest.skip(f"not on {minor}: {otherwise}; runs on {DEFAULT_MINOR}")


def only_where_taints_are_kept(kept: bool) -> None:
    """Skip the test where dray shares no nodes; that it does not is a test of its own."""
    only_where(kept, "its API server drops device taints, so dray shares no nodes")
