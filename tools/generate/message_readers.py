"""The readers of each message, and the writers of each record. Data.

The rights to publish and read are in ``topology.ACCESS``; a test compares them.
"""

from collections.abc import Mapping

from dray.messages.base import Message
from dray.messages.commands import VoidClaim
from dray.messages.decisions import (
    Checkpoint,
    CheckpointPart,
    Decided,
    DecidedGroup,
    NodeLeft,
    Opened,
    Record,
    Released,
    Waiting,
)
from dray.messages.events import ClaimPrepared, ExecutionStep, PodRequested
from dray.messages.facts import (
    ClaimObserved,
    ClusterObserved,
    DeviceClassObserved,
    DomainObserved,
    GroupObserved,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    PriorityClassObserved,
    QueueObserved,
    SliceObserved,
    Synced,
    TaintRuleObserved,
    TemplateObserved,
    TermBegun,
    Tick,
)
from dray.messages.inputs import AgentNoted, ControllerNoted, Reviewed
from dray.messages.usage import GpusUsed

READERS: Mapping[type[Message], tuple[str, ...]] = {
    ClaimObserved: ("allocator",),
    PodObserved: ("allocator",),
    NodeObserved: ("allocator", "node-agent (its own node)"),
    SliceObserved: ("allocator",),
    TaintRuleObserved: ("allocator",),
    DeviceClassObserved: ("webhook", "allocator"),
    PoolObserved: ("webhook", "allocator"),
    PolicyObserved: ("webhook", "allocator"),
    GroupObserved: ("allocator",),
    QueueObserved: ("webhook",),
    PriorityClassObserved: ("webhook",),
    TemplateObserved: ("webhook",),
    DomainObserved: ("allocator", "dray demo"),
    InventoryObserved: ("allocator", "node-agent (its own, for the generation)"),
    TermBegun: ("claim-controller",),
    ClusterObserved: ("webhook", "allocator", "node-agent"),
    Synced: ("webhook", "allocator"),
    Tick: ("allocator",),
    PodRequested: ("dray demo", "dray trace"),
    ClaimPrepared: ("dray demo", "dray trace"),
    ExecutionStep: ("dray trace",),
    Reviewed: ("dray record",),
    ControllerNoted: ("dray record",),
    AgentNoted: ("dray record",),
    GpusUsed: ("dray top", "dray gpus"),
    VoidClaim: ("claim-controller",),
    Opened: ("allocator", "claim-controller"),
    Decided: ("allocator", "claim-controller", "dray demo", "dray trace"),
    DecidedGroup: ("allocator", "claim-controller", "dray demo", "dray trace"),
    Waiting: ("allocator", "claim-controller", "dray demo", "dray trace"),
    Released: ("allocator", "claim-controller"),
    NodeLeft: ("allocator", "claim-controller"),
    Checkpoint: ("allocator", "claim-controller"),
    CheckpointPart: ("allocator", "claim-controller"),
}
"""The services (and verbs) that fold each message. The leader of the claim-controllers also reads
back every fact that it published, so that it starts from the bus' content; ``dray record`` and
``dray doctor --deep`` read all facts and records."""

RECORD_WRITERS: Mapping[type[Record], str] = {
    Opened: "claim-controller",
    Decided: "allocator",
    DecidedGroup: "allocator",
    Waiting: "allocator",
    Released: "allocator",
    NodeLeft: "allocator",
    Checkpoint: "allocator",
    CheckpointPart: "allocator",
}
"""Both services may append to a log; this says which one appends which record."""
