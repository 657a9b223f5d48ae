"""The pools whose claims, pods and logs a replica folds, and from which position on all are known.

Every replica folds all other facts. Earlier facts of a newly subscribed pool are read from the
first one, while new facts are read in order: the pool is caught up when the new facts reach the
position at which the earlier ones ended.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Subscriptions:
    """Everything from the first fact on, by default."""

    everything: bool = True
    whole_from: int | None = 0
    """If everything is subscribed to: the position from which on all facts are known; None: earlier
    facts are still being read."""
    pools: dict[str, int | None] = field(default_factory=dict)
    """The same for single pools."""

    def knows_all(self, position: int) -> bool:
        """Whether all facts of all pools up to ``position`` are known."""
        return self.everything and self.whole_from is not None and position >= self.whole_from

    def takes(self, pool: str) -> bool:
        """Whether facts and records of a pool are folded; facts without a pool always are."""
        return self.everything or not pool or pool in self.pools

    def knows(self, pool: str, position: int) -> bool:
        """Whether all facts of the pool up to ``position`` are known."""
        whole_from = self.pools.get(pool)
        known = whole_from is not None and position >= whole_from
        return known or not pool or self.knows_all(position)

    def awaits(self, pool: str) -> bool:
        """Whether earlier facts of the pool are to be folded.

        Those of a pool that is known already are ignored: folded before the poolless facts that
        precede them, they would give a state that no reader of all facts in order has.
        """
        if not pool or self.pools.get(pool) is not None:
            return False
        return self.whole_from is None if self.everything else pool in self.pools

    def unread(self) -> tuple[str, ...]:
        """Pools whose earlier facts are still to be read."""
        return tuple(pool for pool, whole_from in self.pools.items() if whole_from is None)

    def subscribe(self, pools: Iterable[str] | None, position: int) -> None:
        """Subscribe to these pools (None: all); ``position`` is that of the last fact read."""
        if pools is None:
            if not self.everything:
                self.everything, self.whole_from = True, 0 if position == 0 else None
            return
        begun = 0 if position == 0 else None
        known = self.whole_from if self.everything else begun
        self.pools = {pool: self._whole_from(pool, known) for pool in pools}
        self.everything = False

    def read(self, pools: Iterable[str] | None, sequence: int) -> None:
        """Note that all earlier facts of these pools (None: all) were read up to ``sequence``."""
        if pools is None:
            self.whole_from = sequence if self.whole_from is None else self.whole_from
            return
        for pool in pools:
            if pool in self.pools and self.pools[pool] is None:
                self.pools[pool] = sequence

    def restart(self) -> None:
        """Note that all facts are read from the first one on."""
        self.whole_from = 0
        self.pools = dict.fromkeys(self.pools, 0)

    def _whole_from(self, pool: str, otherwise: int | None) -> int | None:
        known = self.pools.get(pool)
        return otherwise if known is None else known
