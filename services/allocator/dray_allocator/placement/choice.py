"""The best node for a pod: one loop over the nodes that may fit."""

from collections.abc import Iterator
from enum import Enum
from typing import Final, Protocol

import msgspec

from dray.api.claims import Allocation
from dray_allocator.devices.device_requests import Share
from dray_allocator.devices.links import BEYOND_NVLINK
from dray_allocator.devices.ordered_search import PreferenceKey

CONNECTED_NODES: Final = 8
"""How many nodes, those with the best scores, are compared for devices that NVLink connects."""
SLOW_NODES: Final = 4
"""How many slow nodes, the best ones, are searched longer for one pod if no other node fits."""


class Pause(Enum):
    """No answer yet."""

    UNFINISHED = "unfinished"


class Outcome(Enum):
    """Why a node offers nothing."""

    UNFIT = "unfit"
    SLOW = "slow"
    """The first search of the node did not end within its budget."""
    STOPPED = "stopped"
    """No further node is to be evaluated."""


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A node and devices for a pod."""

    node: str
    shares: tuple[Share, ...]
    considered_devices: int
    link_level: int = 0
    """How well its devices are connected (``devices.links``); 0 is best."""
    results: tuple[Allocation, ...] = ()
    """What each claim gets, if all devices that the node sees were searched; else ``shares``."""
    preference_keys: tuple[PreferenceKey, ...] = ()
    """Preference keys of the devices, as ``worst_first``."""
    skipped_alternatives: int = 0
    """How many alternatives with a higher priority did not fit."""
    order: tuple[int, str] = (0, "")
    """Key and uid of the node, if nodes do not come in the order of the score."""

    @property
    def rank(self) -> tuple[int, tuple[PreferenceKey, ...], int, tuple[int, str]]:
        """The lowest is best. Of equal ranks, the first one wins."""
        return self.skipped_alternatives, self.preference_keys, self.link_level, self.order


class CandidateNodes(Protocol):
    """The nodes that may fit a pod."""

    best: Choice | None
    """The best so far."""
    compared: int | None
    """How many nodes that fit are compared; None: all of them."""

    def rows(self) -> Iterator[int]:
        """The rows of the nodes, the best first. Ends when none of the others can be better than
        ``best``."""

    def evaluate(self, row: int, *, longer: bool = False) -> Choice | Outcome:
        """What a node offers. ``longer``: the first search did not end."""

    def exclude(self, row: int) -> None:
        """Leave out a node that is unfit, until it changes."""


def best_choice(nodes: CandidateNodes) -> Choice | None:
    """The best choice that the nodes offer; slow nodes are used only if no other node fits.

    With a preference, all nodes are compared. Link levels are compared among the first few nodes,
    and alternatives until the first alternative fits.
    """
    slow: list[int] = []
    count = 0
    for row in nodes.rows():
        found = nodes.evaluate(row)
        if isinstance(found, Choice):
            count += 1
            if nodes.best is None or found.rank < nodes.best.rank:
                nodes.best = found
            if _is_enough(nodes.best, nodes.compared, count):
                return nodes.best
        elif found is Outcome.UNFIT:
            nodes.exclude(row)
        elif found is Outcome.SLOW:
            slow.append(row)
        else:
            return nodes.best
    return nodes.best or _best_of_slow(nodes, slow)


def _is_enough(best: Choice, compared: int | None, count: int) -> bool:
    if compared is None or best.skipped_alternatives:
        return False
    return count >= compared or best.link_level < BEYOND_NVLINK


def _best_of_slow(nodes: CandidateNodes, slow: list[int]) -> Choice | None:
    """The first slow node that fits."""
    for row in slow[:SLOW_NODES]:
        found = nodes.evaluate(row, longer=True)
        if isinstance(found, Choice):
            return found
        if found is Outcome.UNFIT:
            nodes.exclude(row)
        elif found is Outcome.STOPPED:
            break
    return None
