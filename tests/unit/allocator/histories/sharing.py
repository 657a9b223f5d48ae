"""A cluster whose replicas subscribe to some of the pools each."""

from random import Random
from typing import Any

from tests.unit.allocator.histories.cluster import Cluster
from tests.unit.allocator.histories.replicas import Replica

from dray.messages.facts import ClaimObserved, Fact, PodObserved
from dray_allocator.values.events import EarlierFact, EarlierFactsRead, FactSeen, Subscribe

Reading = tuple[tuple[str, ...] | None, int]
"""Of which pools (None: of all), and how far."""


class Sharing(Cluster):
    """Replicas that attend what they choose, now these pools and then others, and believe that
    they serve all of it."""

    def __init__(self, make: Any, replicas: int = 2) -> None:
        super().__init__(make, replicas)
        self.earlier: dict[str, list[Reading]] = {}
        """Per replica, the readings of earlier facts under way."""

    def subscribe(self, random: Random) -> None:
        """A replica attends other pools than before."""
        replica = random.choice(self.replicas)
        name = replica.state.options.writer
        pools: tuple[str, ...] | None = random.choice(
            [("a",), ("a",), ("b",), ("b",), ("a", "b"), None]
        )
        self.hand(replica, Subscribe(pools))
        subscriptions = replica.state.subscriptions
        if subscriptions.everything:
            self.earlier[name] = [(None, 0)] if subscriptions.whole_from is None else []
            return
        under_way = [(these, at) for these, at in self.earlier.get(name, ()) if these is not None]
        kept = [(these, at) for these, at in under_way if set(these) <= set(subscriptions.pools)]
        begun = {pool for these, _ in kept for pool in these}
        new = tuple(pool for pool in subscriptions.unread() if pool not in begun)
        self.earlier[name] = [*kept, *([(new, 0)] if new else ())]

    def read_earlier(self, random: Random) -> None:
        """A replica reads some more of what there was, as the stream has it by now."""
        replica = random.choice(self.replicas)
        readings = self.earlier.get(replica.state.options.writer, [])
        if not readings:
            return
        pools, at = readings.pop(0)
        last = {fact.ids(): n for n, fact in enumerate(self.facts, 1) if _is_of(fact, pools)}
        left = [sequence for sequence in sorted(last.values()) if sequence > at]
        taken = left[: random.choice([1, 3, 1000])]
        for sequence in taken:
            self.hand(replica, EarlierFact(sequence, self.facts[sequence - 1]))
        at = max([at, *taken])
        if taken == left:
            self.hand(replica, EarlierFactsRead(pools, at))
        else:
            readings.append((pools, at))

    def read_facts(self, replica: Replica, lag: int) -> None:
        subscriptions = replica.state.subscriptions
        for sequence in range(replica.facts + 1, len(self.facts) - lag + 1):
            fact = self.facts[sequence - 1]
            if subscriptions.everything or _is_of(fact, ("", *subscriptions.pools), others=True):
                self.hand(replica, FactSeen(sequence, fact))
            replica.facts = sequence


def _is_of(fact: Fact, pools: tuple[str, ...] | None, *, others: bool = False) -> bool:
    """Whether a claim or pod is of one of the pools; of other facts, ``others``."""
    match fact:
        case ClaimObserved(claim=claim):
            return pools is None or claim.pool in pools
        case PodObserved(pod=pod):
            return pools is None or pod.pool in pools
        case _:
            return others
