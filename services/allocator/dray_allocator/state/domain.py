"""What a replica remembers of one scheduling domain."""

import heapq
from collections import deque
from dataclasses import dataclass, field

from dray.messages.decisions import AnyRecord, Learned
from dray.reasons import Reason
from dray_allocator.scoring.fragmentation.score import NodeWorths
from dray_allocator.scoring.fragmentation.workload_model import WorkloadModel
from dray_allocator.state.decision_log import LogFold

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
    undecodable: str = ""
    """Why this replica must not decide here in this epoch: a message of a newer release."""
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
    """The supply for which the pending pods were looked through; below 0: all are to be tried."""
    topology: str = ""
    """The pool's, when they were."""
    parked: dict[bytes, list[Turn]] = field(default_factory=dict)
    """Heap of the pods that fit nowhere, per signature: once a node looks as if it fitted them,
    the first is tried again, and then the next. Under the empty signature are those whose chances
    none tells; they are tried with every change."""
    parked_as: dict[str, tuple[bytes, Turn]] = field(default_factory=dict)
    """Per pod, the entry of ``parked`` that counts."""
    paused: dict[str, None] = field(default_factory=dict)
    """Pods whose search goes on when there is time."""
    resumed: dict[str, None] = field(default_factory=dict)
    """Those of them that are being tried again."""
    doubted: dict[bytes, None] = field(default_factory=dict)
    """Signatures of parked pods whose reasons may be other ones by now."""
    explained: dict[bytes, tuple[tuple[int, ...], tuple[Reason, ...]]] = field(default_factory=dict)
    """Per signature: reasons, and the versions of what they were computed from."""
    unsettled: dict[str, None] = field(default_factory=dict)
    """Claims with a reservation that has to end some way."""
    late: dict[str, None] = field(default_factory=dict)
    """Waiting pods whose reasons changed too soon to be reported again."""
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

    def park(self, pod_uid: str, signature: bytes) -> None:
        """A pending pod fits nowhere."""
        entry = (signature, self.pending[pod_uid])
        if self.parked_as.get(pod_uid) != entry:
            self.parked_as[pod_uid] = entry
            heapq.heappush(self.parked.setdefault(signature, []), entry[1])

    def first_parked(self, signature: bytes) -> Turn | None:
        """The first pod under a signature that still waits there."""
        parked = self.parked.get(signature, [])
        while parked:
            turn = parked[0]
            if self.parked_as.get(turn[2]) == (signature, turn):
                if self.pending.get(turn[2]) == turn:
                    return turn
                del self.parked_as[turn[2]]
            heapq.heappop(parked)
        self.parked.pop(signature, None)
        self.doubted.pop(signature, None)
        return None

    def put_up_next(self, signature: bytes) -> None:
        """Let the first pod under a signature be tried, if there is one."""
        turn = self.first_parked(signature)
        if turn is not None:
            heapq.heappop(self.parked[signature])
            del self.parked_as[turn[2]]
            heapq.heappush(self.due, turn)

    def resume(self) -> None:
        """Let the pods be tried whose search is not finished."""
        self.resumed, self.paused = self.paused, {}
        for uid in self.resumed:
            if uid in self.pending:
                heapq.heappush(self.due, self.pending[uid])

    def put_up_all(self) -> None:
        """Let every pending pod be tried."""
        self.paused.clear()
        self.parked.clear()
        self.parked_as.clear()
        self.doubted.clear()
        self.due = list(self.pending.values())
        heapq.heapify(self.due)

    def more_supply(self) -> None:
        """Something was freed, added or changed: waiting pods may be tried again."""
        self.supply += 1
