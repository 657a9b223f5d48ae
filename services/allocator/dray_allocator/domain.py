"""What a replica remembers of one scheduling domain."""

from collections import deque
from dataclasses import dataclass, field

from dray.messages.decisions import AnyRecord
from dray.reasons import Reason
from dray_allocator.log.fold import LogFold

Turn = tuple[int, float, str]
"""Order among waiting pods: priority (highest first), age, uid."""


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
    read: bool = False
    """Whether the log was folded to its end once."""
    unnamed: bool = False
    """The facts that named its epoch were lost, and the new ones have not named it yet: they
    will name the next one, and the claims of this log may be gone without a word."""
    renamed: int = 0
    """A lower epoch that the new facts name: followed as soon as this log is known to be lost."""
    pending: dict[str, Turn] = field(default_factory=dict)
    """Pods that a decision could help."""
    due: list[Turn] = field(default_factory=list)
    """Heap of the pods to be tried now."""
    supply: int = 0
    """Moves whenever something may fit that did not fit before."""
    passed: int = -1
    """The supply for which all pending pods were put up for trial."""
    unfit: dict[bytes, int] = field(default_factory=dict)
    """Per signature of a pod: the supply for which it fits nowhere."""
    explained: dict[bytes, tuple[tuple[int, ...], tuple[Reason, ...]]] = field(default_factory=dict)
    """Per signature: reasons, and the versions of what they were computed from."""
    unsettled: dict[str, None] = field(default_factory=dict)
    """Claims with a reservation that has to end some way."""
    late: dict[str, None] = field(default_factory=dict)
    """Waiting pods whose reasons changed too soon to be told again."""
    asked: dict[str, int] = field(default_factory=dict)
    """Per claim, which asking to void it was sent last."""
    ticked: bool = False
    """A tick passed that was not acted upon yet."""
    settle: bool = True
    """Whether ``unsettled`` must be looked at."""

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
        return forgotten

    def more_supply(self) -> None:
        """Something was freed, added or changed: whoever waits may be tried again."""
        self.supply += 1
