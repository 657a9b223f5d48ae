"""Runs the steps of decisions: serially per pod, for a limited number of pods at a time."""

import asyncio

import structlog

from dray.runtime.clock import Clock
from dray_claim_controller.execution.decisions.executions import Execution
from dray_claim_controller.execution.decisions.next_step import Stop
from dray_claim_controller.execution.joint_executions import JointExecutions
from dray_claim_controller.execution.pod_execution import ExecutorParts, PodExecution
from dray_claim_controller.execution.progress import ExecutorEnvironment
from dray_claim_controller.execution.rollback import Rollback
from dray_claim_controller.execution.steps import Hook, Steps
from dray_claim_controller.execution.waiters import WatchWaiters
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.informers import Informers
from dray_claim_controller.work_queue import FairSlots


class PodExecutor:
    """Carries out the newest decision of each pod until it is done or stopped.

    Only a limited number of executions work at a time; namespaces take turns.
    """

    def __init__(
        self,
        informers: Informers,
        clock: Clock,
        environment: ExecutorEnvironment,
        writes: ExecutionWrites,
        rollback: Rollback,
        *,
        concurrency: int = 16,
        watch_timeout_s: float = 2.0,
        binding_timeout_s: float = 600.0,
        give_up_after_s: float = 20.0,
        hook: Hook | None = None,
    ) -> None:
        self._steps = Steps(informers, clock, environment, writes, rollback, hook)
        self._waiters = WatchWaiters(informers, clock)
        self._joint = JointExecutions(informers, environment.now_unix_s, self._waiters.wake)
        self._newest: dict[str, Execution] = {}
        self._running: dict[str, PodExecution] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._parts = ExecutorParts(
            informers,
            clock,
            environment,
            self._steps,
            FairSlots(clock, concurrency),
            self._waiters,
            self._joint,
            self._newest,
            watch_timeout_s,
            binding_timeout_s,
            give_up_after_s,
        )

    @property
    def double_allocations_prevented(self) -> int:
        """Allocations not written because they would have allocated a device twice."""
        return self._steps.double_allocations_prevented

    @property
    def busy(self) -> int:
        """Pods whose execution has not ended."""
        return len(self._tasks)

    @property
    def resting(self) -> int:
        """Pods being executed whose devices aren't ready."""
        return self._waiters.number

    @property
    def failing(self) -> int:
        """Pods being executed with a failed write that is tried again."""
        return sum(one.is_failing for one in self._running.values())

    def executing(self) -> tuple[str, ...]:
        """UIDs of the pods whose execution has not ended."""
        return tuple(self._tasks)

    def submit(self, execution: Execution) -> None:
        """Start an execution; it replaces an older one of the same pod."""
        pod_uid = execution.decision.pod_uid
        known = self._newest.get(pod_uid)
        if known is not None and known.attempt > execution.attempt:
            return
        if known is not None and known.decision.group != execution.decision.group:
            self._joint.fail(known, "it was decided again")
            self._joint.leave(known)
        self._newest[pod_uid] = execution
        self._joint.join(execution)
        self._waiters.wake(pod_uid)
        if (running := self._running.get(pod_uid)) is not None:
            running.interrupt()
        if pod_uid not in self._tasks:
            task = asyncio.create_task(self._serve(pod_uid), name=f"execute-{pod_uid}")
            self._tasks[pod_uid] = task
            task.add_done_callback(lambda ended: self._ended(pod_uid, ended))

    def resume(self, execution: Execution) -> None:
        """Start an execution unless its pod has one already."""
        if execution.decision.pod_uid not in self._tasks:
            self.submit(execution)

    async def close(self) -> None:
        """Stop the executions in their current state; a later execution resumes from what is
        observed."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until nothing is being carried out."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _ended(self, pod_uid: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(pod_uid) is task:  # It was cancelled before it began.
            del self._tasks[pod_uid]
            self._running.pop(pod_uid, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            structlog.get_logger().error("execution failed", pod_uid=pod_uid, exc_info=error)

    async def _serve(self, pod_uid: str) -> None:
        done: Execution | None = None
        unreported: Stop | None = None
        try:
            while (execution := self._newest[pod_uid]) is not done:
                running = self._running[pod_uid] = PodExecution(self._parts, execution, unreported)
                unreported = await running.run()
                done = execution
            self._joint.leave(self._newest.pop(pod_uid))
        finally:
            # Removed now: a decision that is submitted before the task is collected begins another.
            del self._tasks[pod_uid]
            self._running.pop(pod_uid, None)
