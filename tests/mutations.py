"""Lines of defence taken away, for those that must notice: the simulation and the explorer."""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import msgspec

from dray_claim_controller.execution.decisions import next_step as rules

Mutation = Callable[[], AbstractContextManager[Any]]


def executor_ignoring_void() -> AbstractContextManager[Any]:
    """Carries out what was voided meanwhile."""
    real = rules._claim_step

    def step(observed: rules.Observed, decision: Any, wanted: Any) -> Any:
        seen = observed.claims.get(wanted.uid)
        if seen is not None and seen.claim.allocation is None:
            blind = msgspec.structs.replace(seen, claim=msgspec.structs.replace(seen.claim, void=0))
            observed = dataclasses.replace(observed, claims={**observed.claims, wanted.uid: blind})
        return real(observed, decision, wanted)

    return mock.patch.object(rules, "_claim_step", step)


def allocator_forgetting_reservations() -> AbstractContextManager[Any]:
    """Counts only what claims' statuses show."""
    return mock.patch("dray_allocator.state.state.counts", return_value=False)
