"""What ``.ci/run`` runs, in this order, and how long each stage may take. Add a stage: one line.

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
"""Run by ``.ci/run`` itself: the other stages are started by the Python that it installs."""
BUILD: Final = CiStage("make build", 1500)
"""Runs in parallel with the stages from the beginning and with the lowest priority: most of them
leave a core free. A stage that needs what is not built yet waits for it."""
STAGES: Final = (
    SETUP,
    CiStage("make check", 60),
    # One minute of it is for what every role may try on NATS, and for three nats-servers.
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
    # `make test` has run what needs no real control plane.
    CiStage("make conformance REAL_ONLY=1 PAIRS=4000 CASES=1000", 880),
)
TOTAL_S: Final = 58 * 60
"""What all stages may take together, on a machine that no one shares."""
LIMIT_S: Final = 85 * 60
"""More fails. Machines that are shared were seen to be half as fast."""
