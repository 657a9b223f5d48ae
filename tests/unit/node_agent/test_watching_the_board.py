"""The loop that reads the cards."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from dray_node_agent import agent as agents
from dray_node_agent.agent import NodeAgent
from dray_node_agent.boards.ports import Reading

BOUND_S = 60.0


class HungBoard:
    """Cards whose driver answers nobody, until it does."""

    def __init__(self) -> None:
        self.answers = threading.Event()

    def read(self) -> Reading:
        self.answers.wait(BOUND_S)
        return Reading(())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 - a condition elsewhere
            await asyncio.sleep(0.01)


async def test_cards_that_do_not_answer_are_a_problem_until_they_do(monkeypatch) -> None:
    monkeypatch.setattr(agents, "_SLOW_S", 0.05)
    board, node = HungBoard(), SimpleNamespace(name="n", poll=0.01)
    agent = NodeAgent(node=node, board=board, publisher=None, reporter=None)  # type: ignore[arg-type]
    watching = asyncio.create_task(agent.watch_board())
    await until(lambda: "have not answered" in agent.board_problem)
    assert agent.stock() is None
    board.answers.set()
    await until(lambda: agent.board_problem == "")
    assert agent.stock() is not None
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
