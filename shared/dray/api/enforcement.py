"""What limits programs to their shares of a GPU: a pool's ``spec.enforcer`` and its parameters."""

from typing import Final

import msgspec

NO_ENFORCER: Final = "none"
ENV: Final = "env"
TIME_SLICE: Final = "timeslice"
MPS: Final = "mps"
MIG: Final = "mig"
ENFORCERS: Final = (NO_ENFORCER, ENV, TIME_SLICE, MPS, MIG)
TIME_SLICES: Final = ("Default", "Short", "Medium", "Long")
"""Lengths of a time slice. The position of each is the number that ``nvidia-smi`` uses for it."""
_SOFT: Final = "soft"
"""The ``isolation`` that means ``env`` if the pool names no enforcer."""


class Enforcement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The enforcer of a pool's GPUs."""

    enforcer: str = ""
    """One of ENFORCERS; empty: the pool names none, and each claim's ``isolation`` decides."""
    time_slice: str = ""
    """One of TIME_SLICES; empty: ``Default``."""
    mps_threads_percent: int = 0
    """The share of a GPU's threads that one program may use; 0: all."""
    mps_memory: str = ""
    """The memory that one program may use, as a quantity; empty: all."""

    def of(self, isolation: str) -> str:
        """The enforcer of a claim with this isolation."""
        return self.enforcer or (ENV if isolation == _SOFT else NO_ENFORCER)


NOTHING_NAMED: Final = Enforcement()
"""For a pool that names no enforcer."""


def guarantee(enforcement: Enforcement, isolation: str) -> str:
    """What limits a pod of the pool to its share, for the pod's event. Empty: nothing does."""
    match enforcement.of(isolation):
        case "env":
            return (
                "its limits are variables, which hold only while the image loads a limiter library "
                "and no program changes them"
            )
        case "timeslice":
            return "programs on a shared GPU take turns; nothing limits their memory"
        case "mps":
            threads = enforcement.mps_threads_percent
            held = [f"{threads} % of the threads"] if threads else []
            held += [f"{enforcement.mps_memory} of memory"] if enforcement.mps_memory else []
            rest = f"by the MPS daemon's {' and '.join(held)}" if held else "by nothing"
            return (
                f"its limits are variables of MPS: a program that changes them is held {rest}; one "
                "that leaves MPS has no limit, unless the GPU's compute mode is EXCLUSIVE_PROCESS; "
                "a fatal error of one program can end the others on the GPU"
            )
        case "mig":
            return "the GPU itself keeps MIG instances apart: memory, compute and faults"
    return ""
