"""Sets up the enforcers that work on the node, outside the containers."""

from typing import Final, Protocol

from dray.api.enforcement import MPS, TIME_SLICE, TIME_SLICES, Enforcement
from dray_node_agent.decisions.gpus import GpuSnapshot, device_name
from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.gpus.reader import GpuReader
from dray_node_agent.gpus.source import GpusUnavailableError, TimeSliceError
from dray_node_agent.mps_daemons import MpsDaemons

Problems = dict[str, str]
"""By device: why it must not be offered."""
NEEDS_NODE: Final = (MPS, TIME_SLICE)
"""Enforcers that are set up on the node before a device is offered."""


class CardEnforcement(Protocol):
    """Sets up an enforcer on the node's cards."""

    async def apply(self, snapshot: GpuSnapshot, state: NodeState) -> Problems | None:
        """Set up the enforcer that the node's pool asks for. Call it again to retry what failed.
        None: the problems are not known yet."""


class NoEnforcement:
    """Sets up nothing."""

    async def apply(self, snapshot: GpuSnapshot, state: NodeState) -> Problems | None:
        """No problem."""
        return {}


class NodeEnforcement:
    """The enforcers of one node: time slices of its cards, and MPS daemons."""

    def __init__(self, gpus: GpuReader, daemons: MpsDaemons) -> None:
        self._gpus = gpus
        self._daemons = daemons
        self._slices: dict[str, str] = {}
        """The time slice that this process has set, by UUID."""

    async def apply(self, snapshot: GpuSnapshot, state: NodeState) -> Problems | None:
        """See ``CardEnforcement``. A daemon that is no longer wanted ends with its last claim."""
        daemons = await self._daemons.apply(snapshot, state)
        if state.enforcement.enforcer == MPS:
            return daemons
        return await self._set_time_slices(snapshot, state.enforcement)

    async def _set_time_slices(self, snapshot: GpuSnapshot, enforcement: Enforcement) -> Problems:
        is_wanted = enforcement.enforcer == TIME_SLICE
        wanted = (enforcement.time_slice or TIME_SLICES[0]) if is_wanted else TIME_SLICES[0]
        problems: Problems = {}
        for card in snapshot.cards:
            if self._slices.get(card.uuid, "" if is_wanted else wanted) == wanted:
                continue
            try:
                await self._gpus.set_time_slice(card.uuid, TIME_SLICES.index(wanted))
            except (TimeSliceError, GpusUnavailableError) as error:
                if is_wanted:
                    problems[device_name(card.uuid)] = f"its time slice can't be set: {error}"
            else:
                self._slices[card.uuid] = wanted
        return problems
