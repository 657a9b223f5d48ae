"""How a test is left out on a server of which it says nothing: here alone, and never everywhere."""

import pytest

from dray_sandbox.controlplane.build import DEFAULT_MINOR, wanted_minor


def only_where(holds: bool, otherwise: str) -> None:
    """Skip the test where ``holds`` is false, telling why not there, and where it runs.

    ``make conformance`` takes that for a difference on the default minor, which ``.ci/run`` runs:
    so what is left out on another minor is known to run.
    """
    if not holds:
        pytest.skip(f"not on {wanted_minor()}: {otherwise}; runs on {DEFAULT_MINOR}")


def only_where_taints_are_kept(kept: bool) -> None:
    """Skip the test where dray shares no nodes; that it does not is a test of its own."""
    only_where(kept, "its API server drops device taints, so dray shares no nodes")
