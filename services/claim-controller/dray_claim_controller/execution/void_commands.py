"""Carries out the allocators' commands to void claims."""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from dray.api.errors import TemporaryError
from dray.bus.ports import Bus, BusUnavailableError, Delivery, StreamMissingError
from dray.bus.topology import COMMANDS_STREAM
from dray.kube.ports import KubeError, NotFoundError
from dray.messages.base import UndecodableMessageError, decode, subject_prefix
from dray.messages.commands import VoidClaim
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.execution.decisions.rollback_rules import VoidCheck
from dray_claim_controller.execution.rollback import VoidWriter
from dray_claim_controller.informers import Informers
from dray_claim_controller.tracing import MESSAGE_ID, rollback_span
from dray_claim_controller.work_queue import FairWorkQueue

_DURABLE = "claim-controller"
_TRIES: Final = 6
"""Deliveries of a command after which a void that can't be written is given up: with the rests
between them, about half a minute."""
_MOST_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """A command that was not answered yet."""

    command: VoidClaim
    delivery: Delivery


class VoidCommands:
    """Consumes ``VoidClaim``. The answer is the claim's next fact, so a repetition is a no-op.

    Commands about one claim are answered together, commands about different claims in parallel. A
    command that fails is delivered again, later each time.
    """

    def __init__(self, bus: Bus, informers: Informers, clock: Clock, voids: VoidWriter) -> None:
        self._bus = bus
        self._clock = clock
        self._informers = informers
        self._voids = voids
        self._asked: dict[str, list[_Asked]] = {}
        """By the claim's UID."""
        self._queue = FairWorkQueue(clock, self._answer, name="void", group_of=self._namespace_of)

    async def run(self) -> None:
        """Consume until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="void-claims")
            group.create_task(self._consume_for_ever(), name="consume-commands")

    async def _consume_for_ever(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._consume(backoff)
            except BusUnavailableError:
                await self._clock.sleep(backoff.next_s())

    async def _consume(self, backoff: Backoff) -> None:
        subjects = (f"{subject_prefix(VoidClaim)}.>",)
        async for delivery in self._bus.consume(
            COMMANDS_STREAM, durable=_DURABLE, subjects=subjects
        ):
            backoff.reset()
            try:
                command = decode(delivery.message, VoidClaim)
            except UndecodableMessageError as error:
                await delivery.reject(str(error))
                continue
            self._asked.setdefault(command.claim_uid, []).append(_Asked(command, delivery))
            self._queue.add(command.claim_uid)

    async def _answer(self, claim_uid: str) -> None:
        asked = self._asked.pop(claim_uid, [])
        if not asked:
            return
        furthest = max(asked, key=lambda one: one.command.attempt)
        tries = max(one.delivery.attempts for one in asked)
        cause = furthest.delivery.message.headers.get(MESSAGE_ID, "")
        try:
            await self.void(furthest.command, cause, is_last_try=tries >= _TRIES)
        except NotFoundError:
            # Deleted since it was read: the fact that it is gone is the answer.
            again_s = None
        except (TemporaryError, KubeError) as error:
            asked_s = getattr(error, "retry_after_s", 0.0)
            again_s = max(asked_s, min(2.0 ** (tries - 1), _MOST_S))
            structlog.get_logger().info(
                "not voided yet", claim=furthest.command.name, tries=tries, error=str(error)
            )
        else:
            again_s = None
        for one in asked:
            await self._reply(one.delivery, again_s)

    async def _reply(self, delivery: Delivery, again_s: float | None) -> None:
        try:
            if again_s is None:
                await delivery.ack()
            else:
                await delivery.retry(again_s)
        except (BusUnavailableError, StreamMissingError) as error:
            # It is delivered again: by then the answer is a no-op.
            structlog.get_logger().debug("an answer is lost", error=str(error))

    async def void(self, command: VoidClaim, cause: str = "", *, is_last_try: bool = False) -> None:
        """Void the claim's attempts, unless it is allocated: then its fact says so.

        ``cause``: id of the command's message. Raises any KubeError: try again. Attempts that the
        API server refuses to void are given up; after a last try, those that it can't void are also
        given up.
        """
        try:
            await self._informers.refresh_claim(command.claim_uid, command.namespace, command.name)
        except KubeError:
            # On the last try the cached claim is enough: every write is fenced by its revision.
            if not is_last_try:
                raise
        rule = VoidCheck(claim_uid=command.claim_uid, attempt=command.attempt)
        if not self._informers.evaluate(rule):
            return
        claim = self._informers.cache.claims[command.claim_uid]
        if self._voids.is_settled(claim, command.attempt):
            return
        structlog.get_logger().info(
            "voiding", claim=command.name, attempt=command.attempt, reason=command.reason
        )
        pod = self._informers.cache.pods.get(claim.claim.pod_uid)
        self._informers.caused(command.claim_uid, cause)
        reason, attempt = command.reason, command.attempt
        with rollback_span("void", claim, pod, attempt=attempt, reason=reason):
            await self._voids.void(command.claim_uid, attempt, is_last_try=is_last_try)

    def _namespace_of(self, claim_uid: str) -> str:
        asked = self._asked.get(claim_uid)
        return asked[0].command.namespace if asked else ""
