"""A scheduling domain: its decision log and its queue."""

from collections import deque
from dataclasses import dataclass, field

from dray.messages.decisions import AnyRecord, Learned
from dray_allocator.scoring.fragmentation.score import NodeWorths
from dray_allocator.scoring.fragmentation.workload_model import WorkloadModel
from dray_allocator.state.decision_log import LogFold
from dray_allocator.state.scheduling_queue import SchedulingQueue


@dataclass(slots=True)
class SchedulingDomain:
    """The fold of the domain's log, the pending appends, and the queue of pods."""

    name: str
    epoch: int
    start: int = 1
    """Sequence of the log's record from which a reader knows everything."""
    confirmed: LogFold = field(default_factory=LogFold)
    """The log as it was read."""
    current: LogFold = field(default_factory=LogFold)
    """With the pending appends; decisions build on it."""
    appended: deque[tuple[int, AnyRecord]] = field(default_factory=deque)
    """Sequence and record of appends not read back yet."""
    fence: int | None = None
    """While serving: the log's last sequence when the lease was taken."""
    lost: bool = False
    """The log's stream is missing."""
    undecodable: str = ""
    """Why this replica must not decide in this epoch: a message of a newer release."""
    read: bool = False
    """Whether the log was folded to its end once, from its first record or from a whole
    checkpoint on."""
    unnamed: bool = False
    """The facts that named the epoch are lost, and the new facts have not named one yet. Claims
    of this log may be deleted without a fact."""
    renamed: int = 0
    """A lower epoch that the new facts name. It is followed as soon as this log is known to be
    lost."""
    queue: SchedulingQueue = field(default_factory=SchedulingQueue)
    unsettled: dict[str, None] = field(default_factory=dict)
    """Claims with a reservation that has not ended."""
    asked: dict[str, int] = field(default_factory=dict)
    """Per claim, number of the last void request sent."""
    ticked: bool = False
    """A tick was folded and not handled yet."""
    settle: bool = True
    """Whether ``unsettled`` must be checked."""

    unwritten: Learned | None = None
    """The workload model that is used but not in the log yet; the next decided record has it."""
    workload_model: WorkloadModel | None = None
    """While serving, if the policy learns: the model of the pods seen."""
    node_worths: NodeWorths = field(default_factory=NodeWorths)
    """Cache of what follows from ``learned``."""

    @property
    def learned(self) -> Learned | None:
        """The workload model of FragmentationAware; None before the first decision."""
        return self.unwritten or self.current.learned

    @property
    def serving(self) -> bool:
        """Whether this replica may append, once it is caught up."""
        return self.fence is not None

    def expected_last(self) -> int:
        """The sequence that the next append expects to be the log's last."""
        return self.current.sequence

    def forget_appended(self) -> list[AnyRecord]:
        """Return to the confirmed log; return the forgotten records."""
        forgotten = [record for _, record in self.appended]
        self.appended.clear()
        self.current = self.confirmed.copy()
        self.forget_learned()
        return forgotten

    def forget_learned(self) -> None:
        """Drop the workload model that is not in the log."""
        self.unwritten = self.workload_model = None
