"""The stages of ``.ci/run``, in order, with their time budgets. To add a stage, add one line.

Budgets are wall time on 2 cores with empty caches. A stage over its budget is printed; the run
fails only if all stages together take longer than LIMIT_S.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CiStage:
    """A command, as a person types it, and the time it may take."""

    command: str
    budget_s: int


SETUP: Final = CiStage("make setup", 180)
"""Run by ``.ci/run`` itself, because the Python that it installs starts the other stages."""
BUILD: Final = CiStage("make build", 1500)
"""Runs in parallel with the stages from the beginning, with the lowest priority: most stages
leave a core free. A stage waits for programs that it needs and that are not built yet."""
STAGES: Final = (
    SETUP,
    CiStage("make check", 60),
    # One minute of it is for the rights of every role on NATS, and for three nats-servers.
    CiStage("make test", 600),
    CiStage("make demo", 30),
    CiStage("make test-shells", 60),
    # `make test` has run seeds 0 and 1 already, `make test-real` three on the real control plane.
    CiStage("make faults FIRST=2 SEEDS=8", 180),
    CiStage("make chaos SEEDS=60", 150),
    CiStage("make test-real", 340),
    CiStage("make demo CONTROL_PLANE=real", 30),
    CiStage("make node-packages", 60),
    CiStage("make test-node SHORT=1", 300),
    CiStage("make demo KUBELET=real", 30),
    CiStage("make packaging-packages", 60),
    CiStage("make images BASE=debian", 260),
    CiStage("make e2e-helm SHORT=1", 140),
    CiStage("make e2e-compose SHORT=1", 120),
    # `make test` has run the tests that need no real control plane.
    CiStage("make conformance REAL_ONLY=1 PAIRS=4000 CASES=1000", 880),
)
TOTAL_S: Final = 58 * 60
"""The budget of all stages together, on a machine that is not shared."""
LIMIT_S: Final = 85 * 60
"""A longer run fails. Shared machines were seen to be half as fast."""
