"""What must not notice that one object is odd: other pods, processes, terms and logs."""

from dataclasses import dataclass
from typing import Self

from tests.conformance.path_b.cluster import Cluster

from dray.bus.topology import FACTS_STREAM
from dray.messages.base import decode, subject_prefix
from dray.messages.facts import TermBegun
from tools.faults.plan import DEDICATED


@dataclass(slots=True)
class Neighbours:
    """The cluster, and what ran in it before the odd object was made."""

    cluster: Cluster
    processes: dict[str, int]
    term: int
    epoch: int
    made: int = 0

    @classmethod
    async def of(cls, cluster: Cluster) -> Self:
        """As it is now. A pod was decided on before, so there is a log."""
        processes = cluster.stack.runner.pids()
        return cls(cluster, processes, await _term(cluster), await cluster.epoch(DEDICATED))

    async def are_served(self) -> None:
        """Another pod gets a device, by the processes, in the term and by the log of before."""
        self.made += 1
        name = f"neighbour-{self.made}"
        await self.cluster.submit(name, DEDICATED)
        await self.cluster.running(name)
        assert self.cluster.stack.runner.pids() == self.processes
        assert await _term(self.cluster) == self.term
        assert await self.cluster.epoch(DEDICATED) == self.epoch


async def _term(cluster: Cluster) -> int:
    """Which term of the claim-controller this is."""
    newest = await cluster.bus.last(FACTS_STREAM, f"{subject_prefix(TermBegun)}.>")
    assert newest is not None
    return decode(newest.payload, TermBegun).revision
