"""What a replica remembers of one scheduling domain."""

from collections import deque
from dataclasses import dataclass, field

from dray.messages.decisions import AnyRecord, Learned
from dray_allocator.scoring.fragmentation.score import NodeWorths
from dray_allocator.scoring.fragmentation.workload_model import WorkloadModel
from dray_allocator.state.decision_log import LogFold
from dray_allocator.state.scheduling_queue import SchedulingQueue


@dataclass(slots=True)
class Domain:
    """The fold of the domain's log, what was appended on top, and who is to be tried."""

    name: str
    epoch: int
    confirmed: LogFold = field(default_factory=LogFold)
    """As the log was read back."""
    current: LogFold = field(default_factory=LogFold)
    """With what was appended since: decisions build on it."""
    appended: deque[tuple[int, AnyRecord]] = field(default_factory=deque)
    """Sequence and record of appends not read back yet."""
    fence: int | None = None
    """While serving: the log's last sequence when the lease was taken."""
    lost: bool = False
    """The log's stream is missing."""
    undecodable: str = ""
    """Why this replica must not decide here in this epoch: a message of a newer release."""
    read: bool = False
    """Whether the log was folded to its end once."""
    unnamed: bool = False
    """The facts that named its epoch were lost, and the new ones have not named it yet: they
    will name the next one, and the claims of this log may be gone without a word."""
    renamed: int = 0
    """A lower epoch that the new facts name: followed as soon as this log is known to be lost."""
    queue: SchedulingQueue = field(default_factory=SchedulingQueue)
    unsettled: dict[str, None] = field(default_factory=dict)
    """Claims with a reservation that has to end some way."""
    asked: dict[str, int] = field(default_factory=dict)
    """Per claim, which asking to void it was sent last."""
    ticked: bool = False
    """A tick passed that was not acted upon yet."""
    settle: bool = True
    """Whether ``unsettled`` must be looked at."""

    unwritten: Learned | None = None
    """What is decided by, and is not in the log yet: the next decision's record has it."""
    learner: WorkloadModel | None = None
    """While serving, where the policy learns: the pods seen."""
    landscapes: NodeWorths = field(default_factory=NodeWorths)
    """A cache of what follows from ``learned``."""

    @property
    def learned(self) -> Learned | None:
        """What FragmentationAware decides by; None before the first decision."""
        return self.unwritten or self.current.learned

    @property
    def serving(self) -> bool:
        """Whether this replica may append, once it has folded what there is."""
        return self.fence is not None

    def expected_last(self) -> int:
        """The sequence that the next append expects to be the log's last."""
        return self.current.sequence

    def forget_appended(self) -> list[AnyRecord]:
        """Go back to what is confirmed; the records that no longer count."""
        forgotten = [record for _, record in self.appended]
        self.appended.clear()
        self.current = self.confirmed.copy()
        self.forget_learned()
        return forgotten

    def forget_learned(self) -> None:
        """What was learned and isn't in the log does not count."""
        self.unwritten = self.learner = None
