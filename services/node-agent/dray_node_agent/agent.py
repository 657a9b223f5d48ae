"""The agent's loops: watch the board, follow the node's state, publish, serve, sweep."""

import asyncio
import contextlib
from dataclasses import replace

import structlog

from dray.domain.errors import DrayError, TemporaryError
from dray.kube.ports import KubeError
from dray.messages.facts import ClusterObserved
from dray.runtime.backoff import Backoff
from dray_node_agent.boards.ports import Board, BoardUnavailableError, Reading
from dray_node_agent.following import Reporter
from dray_node_agent.inventory import NodeState, Stock, unhealthy
from dray_node_agent.kubelet.preparing import Preparer
from dray_node_agent.kubelet.server import KubeletServer
from dray_node_agent.publishing import Publisher
from dray_node_agent.settings import NodeGroup

_SLOW_S = 10.0
"""From here on a reading of the cards takes too long to be under way."""


class NodeAgent:
    """One node's agent. Its loops run for ever; ``app`` runs them side by side."""

    def __init__(
        self, *, node: NodeGroup, board: Board, publisher: Publisher, reporter: Reporter
    ) -> None:
        self._node = node
        self._board = board
        self._publisher = publisher
        self._reporter = reporter
        self._reading: Reading | None = None
        self._state: NodeState | None = None
        self._server: ClusterObserved | None = None
        self._read = asyncio.Event()
        self._told = asyncio.Event()
        self._wake = asyncio.Event()
        self._restored = asyncio.Event()
        self._log = structlog.get_logger().bind(node=node.name)
        self.generation = 0
        """Of the pool as published; 0 before."""
        self.registration = "the kubelet has not called yet"
        """Empty once the kubelet has registered the plugin."""
        self.board_problem = "the board has not been read yet"
        self.publishing_problem = "nothing has been published yet"

    def stock(self) -> Stock | None:
        """What claims can get here now; None before the first reading."""
        if self._reading is None:
            return None
        state = self._state or NodeState(self._node.name)
        return Stock(self._reading, state)

    def on_state(self, state: NodeState) -> None:
        """The bus told the node's state."""
        self._told.set()
        if state != self._state:
            self._log.info("node state", pool=state.pool, owner=state.owner, qos=state.qos)
            self._state = state
            self._wake.set()

    def on_generation(self, generation: int) -> None:
        """The bus remembers a generation of this node; ours must not be below it."""
        if generation > self._publisher.floor:
            self._publisher.floor = generation
            self._wake.set()

    def on_server(self, server: ClusterObserved) -> None:
        """The bus told what the API server keeps; it may have been upgraded."""
        self._server = server
        self._wake.set()

    def on_registered(self, problem: str) -> None:
        """The kubelet's verdict; it may have wiped the slices while the plugin was away."""
        self.registration = problem
        self._wake.set()

    async def watch_board(self) -> None:
        """Loop: read the cards; tell the publisher what changed."""
        while True:
            try:
                reading = await self._read_board()
                self.board_problem = ""
                if reading != self._reading:
                    self._report_health(reading)
                    self._reading = reading
                    self._read.set()
                    self._wake.set()
            except BoardUnavailableError as error:
                if self.board_problem != str(error):
                    self._log.error("the board can't be read", error=str(error))
                self.board_problem = str(error)
            await asyncio.sleep(self._node.poll)

    async def publish(self) -> None:
        """Loop: keep slices and the health fact as the board and the pool say."""
        await self._know_cards_and_state()
        backoff = Backoff(most_s=self._node.resync)
        while True:
            self._wake.clear()
            try:
                await self._publish_once()
                backoff.reset()
            except DrayError as error:
                if self.publishing_problem != str(error):
                    self._log.warning("slices not published, trying again", error=str(error))
                self.publishing_problem = str(error)
                await backoff.pause()
            else:
                await self._woken_within(self._node.resync)

    async def watch_slices(self) -> None:
        """Loop: compare again when somebody touched the slices, as a kubelet that starts does."""
        backoff = Backoff(most_s=self._node.resync)
        while True:
            try:
                async for _ in self._publisher.changes():
                    backoff.reset()
                    self._wake.set()
            except KubeError as error:
                self._log.error("slices are not watched, trying again", error=str(error))
            await backoff.pause()

    async def serve(self, preparer: Preparer, server: KubeletServer) -> None:
        """Loop: take up what an earlier agent left, then serve the kubelet."""
        await self._know_cards_and_state()
        backoff = Backoff()
        while True:
            try:
                await preparer.restore()
                break
            except (TemporaryError, KubeError) as error:
                self._log.warning("claims not restored, trying again", error=str(error))
                await backoff.pause()
        self._restored.set()
        try:
            await server.start()
            await asyncio.Event().wait()
        finally:
            await server.stop(self._node.grace)

    async def sweep(self, preparer: Preparer) -> None:
        """Loop: forget claims that ended without Unprepare."""
        await self._restored.wait()
        while True:
            try:
                await preparer.sweep()
            except DrayError as error:
                self._log.info("sweep postponed", error=str(error))
            await asyncio.sleep(self._node.sweep)

    async def _read_board(self) -> Reading:
        """A driver that hangs can't be interrupted: it is waited for, but not in silence."""
        reading = asyncio.ensure_future(asyncio.to_thread(self._board.read))
        try:
            done, _ = await asyncio.wait([reading], timeout=_SLOW_S)
            if not done:
                self.board_problem = f"the cards have not answered for {_SLOW_S:.0f} s"
                self._log.error("the board can't be read", error=self.board_problem)
            return await reading
        finally:
            reading.cancel()

    async def _publish_once(self) -> None:
        reading, state = self._reading, self._state
        if reading is None or state is None:
            return
        if self._server is not None:
            self._publisher.expect(self._server)
        generation = await self._publisher.publish(reading, state)
        self.publishing_problem = ""
        if generation != self.generation:
            self._log.info("slices published", generation=generation, cards=len(reading.cards))
        self.generation = generation
        self._reporter.inventory(generation, unhealthy(reading))

    async def _know_cards_and_state(self) -> None:
        """Wait for the first reading, and for a state: the bus's, or the one remembered.

        A node that never had one waits a little for the bus to tell it.
        """
        await self._read.wait()
        remembered = (await self._publisher.record()).node
        if self._state is None and remembered is not None:
            self._state = replace(remembered, name=self._node.name)
        if self._state is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._node.patience):
                    await self._told.wait()
        if self._state is None:
            self._log.warning("no pool known for this node: publishing without one")
            self._state = NodeState(self._node.name)

    async def _woken_within(self, wait_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()

    def _report_health(self, reading: Reading) -> None:
        before = set(unhealthy(self._reading)) if self._reading else set()
        now = set(unhealthy(reading))
        if sick := sorted(now - before):
            self._log.error("cards fell ill", devices=sick)
        if well := sorted(before - now):
            self._log.info("cards are well again", devices=well)
