"""Options that decisions depend on, from the settings."""

from dataclasses import dataclass, field, fields
from typing import Any

from dray.api import names


@dataclass(frozen=True, slots=True)
class AllocatorOptions:
    """Times in seconds, by the ticks' clock."""

    writer: str = "allocator"
    """Name of this replica in the records."""
    drivers: tuple[str, ...] = (names.DRIVER,)
    """Drivers whose devices dray allocates; others belong to kube-scheduler."""
    uncommitted_after_s: float = 30.0
    void_repeat_s: float = 5.0
    exclusion_s: float = 300.0
    group_exclusion_s: float = 10.0
    """The exclusion for pods of a group: all of them were rolled back because of one."""
    checkpoint_interval_s: float = 600.0
    waiting_repeat_s: float = 10.0
    """If only the counts in a waiting pod's reasons changed, they are recorded again after this."""
    pods_per_record: int = 64
    unconfirmed_records: int = 256
    """The maximum number of records that are appended but not confirmed yet."""
    searches_per_step: int = 64
    """How many pods are searched for before other work of the process may run."""
    decided_bytes: int = 900_000
    """Limit of the decisions in one record. Every bus takes messages of 1 MiB (``MINIMUM_BYTES``);
    the rest is for the record's other fields."""
    group_parts: int = 8
    """The maximum number of records for the decision on one PodGroup."""
    group_pods: int = 4096
    """The maximum number of pods of one PodGroup; a larger group is not decided."""
    group_trials: int = 2_000
    """The maximum number of searches of a node for several pods of one PodGroup together, after one
    of its pods found no node."""
    group_timeout_s: float = 300.0
    """How long after its decision a PodGroup may have fewer running pods than its minimum, unless
    the PodGroup has its own timeout."""
    group_hold_s: float = 60.0
    """How long the devices of a lost pod are held for its PodGroup; 0: not at all."""
    node_hold_after_s: float = 600.0
    """How long a pod or PodGroup must wait before nodes are held for it."""
    node_hold_s: float = 3600.0
    """The longest time for which nodes are held for it; 0: not at all."""

    changed: dict[str, Any] = field(init=False, default_factory=dict, repr=False, compare=False)
    """Options that differ from the defaults, by name, as JSON values; without the writer."""

    def __post_init__(self) -> None:
        settings = [one for one in fields(self) if one.init and one.name != "writer"]
        changed = {
            one.name: list(value) if isinstance(value, tuple) else value
            for one in settings
            if (value := getattr(self, one.name)) != one.default
        }
        object.__setattr__(self, "changed", changed)
