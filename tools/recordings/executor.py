"""A simulated executor, which commits late or never, binds and voids."""

from msgspec.structs import replace

from dray.api.claims import Allocation, last_attempt_before
from dray.messages.commands import VoidClaim
from dray.messages.decisions import Decided
from tools.recordings.cluster import RecordedCluster


class RecordedExecutor:
    """Executes the logs' decisions."""

    def __init__(self, cluster: RecordedCluster) -> None:
        self.commands: list[VoidClaim] = []
        """The allocators' commands."""
        self._cluster = cluster
        self._bus = cluster.bus
        self._random = cluster.random
        self._done: dict[tuple[str, int], int] = {}
        """Records read, by domain and epoch."""
        self._running: list[tuple[str, int]] = []
        self._allocations: dict[tuple[str, int], Allocation] = {}

    def read_logs(self) -> None:
        """Read new records of the newest epochs' logs."""
        for domain, log in self._bus.logs.items():
            done = self._done.get((domain, log.epoch), 0)
            for record in log.records[done:]:
                for pod in record.pods if isinstance(record, Decided) else ():
                    for made in pod.claims:
                        self._allocations[made.uid, made.attempt] = made.allocation
                        self._running.append((made.uid, made.attempt))
            self._done[domain, log.epoch] = len(log.records)

    def commit(self) -> None:
        """Continue some execution, possibly after a long pause, with its checks and its write."""
        self.read_logs()
        if not self._running:
            return
        at = self._random.randrange(len(self._running))
        uid, attempt = self._running[at]
        if self._random.random() < 0.8:
            del self._running[at]
        claim = self._cluster.claims.get(uid)
        if claim is None or claim.allocation is not None:
            return
        if attempt <= last_attempt_before(self._bus.logs[claim.pool].epoch):
            return
        if claim.void >= attempt or claim.decision > attempt:
            return
        allocation = self._allocations[uid, attempt]
        self._cluster.publish_claim(replace(claim, allocation=allocation, decision=attempt))
        self._cluster.count_event("committed")

    def bind(self) -> None:
        """Bind a pod whose claims are allocated."""
        for uid, pod in self._cluster.pods.items():
            claim = next((one for one in self._cluster.claims.values() if one.pod_uid == uid), None)
            if claim is None or claim.allocation is None or pod.node:
                continue
            bound = replace(pod, node=claim.allocation.node, phase="Running")
            self._cluster.count(bound)
            return

    def void(self) -> None:
        """Execute a command to void, possibly late or twice."""
        if not self.commands:
            return
        command = self._random.choice(self.commands[-5:])
        claim = self._cluster.claims.get(command.claim_uid)
        if claim is not None and claim.allocation is None and claim.void < command.attempt:
            self._cluster.publish_claim(replace(claim, void=command.attempt))
            self._cluster.count_event("voided")
