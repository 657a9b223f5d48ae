"""The executor carries out every decision that it is given."""

import asyncio
from typing import Any
from unittest.mock import MagicMock

import pytest

from dray.messages.decisions import PodDecision
from dray_claim_controller.execution.decisions.executions import Execution
from dray_claim_controller.execution.executor import PodExecutor
from dray_claim_controller.execution.pod_execution import PodExecution


def an_execution() -> Execution:
    decision = PodDecision(
        pod_uid="p", namespace="ns", name="p", node="n", binder="dray", claims=()
    )
    return Execution("pool", decision)


async def test_a_decision_that_comes_as_the_pods_execution_ends_is_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor = PodExecutor(*(MagicMock() for _ in range(5)))
    first, second = an_execution(), an_execution()
    begun: list[Execution] = []

    async def run(self: Any) -> None:
        begun.append(self._execution)
        if self._execution is first:  # Submitted after it has ended, before its task is collected.
            asyncio.get_running_loop().call_soon(executor.submit, second)

    monkeypatch.setattr(PodExecution, "run", run)
    executor.submit(first)
    for _ in range(10):  # All that is ready runs; nothing waits for anything else.
        await asyncio.sleep(0)
    assert [id(one) for one in begun] == [id(first), id(second)]
    assert executor.executing() == ()
