"""Of which pools a replica takes claims, pods and logs in, and since when it knows them whole.

All other facts are taken in by every replica. Reading of a newly subscribed pool begins at
its first fact, while the facts of all pools go on to be read in order: it is whole once these have
reached what was met there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Subscriptions:
    """By default everything, from the first fact on."""

    everything: bool = True
    whole_from: int | None = 0
    """If everything is subscribed to: the position from which on all of it is known; None: what
    there was before is still being read."""
    pools: dict[str, int | None] = field(default_factory=dict)
    """The same of single pools."""

    def knows_all(self, position: int) -> bool:
        """Whether all facts of all pools up to ``position`` are known."""
        return self.everything and self.whole_from is not None and position >= self.whole_from

    def takes(self, pool: str) -> bool:
        """Whether facts and records of a pool are taken in; those of no pool always are."""
        return self.everything or not pool or pool in self.pools

    def knows(self, pool: str, position: int) -> bool:
        """Whether all facts of the pool up to ``position`` are known."""
        whole_from = self.pools.get(pool)
        known = whole_from is not None and position >= whole_from
        return known or not pool or self.knows_all(position)

    def awaits(self, pool: str) -> bool:
        """Whether facts of the pool are wanted out of turn. Where they were read, or need not be,
        a reading for the sake of others must not bring any before the facts of no pool that
        precede them: nobody who reads all in order could decide the same."""
        if not pool or self.pools.get(pool) is not None:
            return False
        return self.whole_from is None if self.everything else pool in self.pools

    def unread(self) -> tuple[str, ...]:
        """Pools whose earlier facts are still to be read."""
        return tuple(pool for pool, whole_from in self.pools.items() if whole_from is None)

    def subscribe(self, pools: Iterable[str] | None, position: int) -> None:
        """From now on these pools, or everything; ``position`` is that of the last fact read."""
        if pools is None:
            if not self.everything:
                self.everything, self.whole_from = True, 0 if position == 0 else None
            return
        begun = 0 if position == 0 else None
        known = self.whole_from if self.everything else begun
        self.pools = {pool: self._whole_from(pool, known) for pool in pools}
        self.everything = False

    def read(self, pools: Iterable[str] | None, sequence: int) -> None:
        """All earlier facts of these pools, or of everything, were read; ``sequence`` is that of
        the last one met."""
        if pools is None:
            self.whole_from = sequence if self.whole_from is None else self.whole_from
            return
        for pool in pools:
            if pool in self.pools and self.pools[pool] is None:
                self.pools[pool] = sequence

    def begin_anew(self) -> None:
        """All facts are read from the first one on."""
        self.whole_from = 0
        self.pools = dict.fromkeys(self.pools, 0)

    def _whole_from(self, pool: str, otherwise: int | None) -> int | None:
        known = self.pools.get(pool)
        return otherwise if known is None else known
