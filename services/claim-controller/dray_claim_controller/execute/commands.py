"""Carries out the allocators' wishes to void claims."""

import structlog

from dray.bus.ports import Bus, BusUnavailableError, Delivery
from dray.bus.topology import COMMANDS_STREAM
from dray.domain.errors import TemporaryError
from dray.kube.ports import Kube, NotFoundError, RefusedError
from dray.messages.base import UndecodableMessageError, decode, subject_prefix
from dray.messages.commands import VoidClaim
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.deciding.executing import MayVoid
from dray_claim_controller.execute.withdraw import Withdrawer
from dray_claim_controller.observe.watching import Watching
from dray_claim_controller.tracing import MESSAGE_ID, taking_back

DURABLE = "claim-controller"
_AGAIN_S = 1.0


class VoidCommands:
    """Consumes ``VoidClaim``. The answer is the claim's next fact, so a repetition is a no-op."""

    def __init__(self, bus: Bus, kube: Kube, watching: Watching, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._watching = watching
        self._withdrawer = Withdrawer(kube, watching)

    async def run(self) -> None:
        """Consume until cancelled."""
        backoff = Backoff()
        while True:
            try:
                await self._consume(backoff)
            except BusUnavailableError:
                await self._clock.sleep(backoff.next_s())

    async def _consume(self, backoff: Backoff) -> None:
        subjects = (f"{subject_prefix(VoidClaim)}.>",)
        async for delivery in self._bus.consume(
            COMMANDS_STREAM, durable=DURABLE, subjects=subjects
        ):
            backoff.reset()
            await self._answer(delivery)

    async def _answer(self, delivery: Delivery) -> None:
        try:
            command = decode(delivery.message, VoidClaim)
            await self.void(command, delivery.message.headers.get(MESSAGE_ID, ""))
        except (UndecodableMessageError, RefusedError) as error:
            await delivery.reject(str(error))
        except BusUnavailableError:
            raise
        except TemporaryError:
            await delivery.retry(_AGAIN_S)
        except NotFoundError:
            # Deleted since it was read: the fact that it is gone is the answer.
            await delivery.ack()
        else:
            await delivery.ack()

    async def void(self, command: VoidClaim, cause: str = "") -> None:
        """Void the claim's attempts, unless it is allocated: then its fact says so.

        ``cause``: id of the command's message.
        Raises ConflictError or KubeUnavailableError: try again.
        """
        await self._watching.refresh_claim(command.claim_uid, command.namespace, command.name)
        question = MayVoid(claim_uid=command.claim_uid, attempt=command.attempt)
        if not self._watching.ask(question):
            return
        structlog.get_logger().info(
            "voiding", claim=command.name, attempt=command.attempt, reason=command.reason
        )
        claim = self._watching.picture.claims[command.claim_uid]
        if claim.claim.void >= command.attempt:
            return
        pod = self._watching.picture.pods.get(claim.claim.pod_uid)
        self._watching.caused(command.claim_uid, cause)
        reason, attempt = command.reason, command.attempt
        with taking_back("void", claim, pod, attempt=attempt, reason=reason):
            await self._withdrawer.void(command.claim_uid, attempt)
