"""Opens decision logs. Only the leader does, and always in the same order:

the epoch into the pool's status, void marks on every unallocated claim, their facts, then
the stream with ``opened``, then the domain's fact.
"""

import asyncio

import structlog

from dray.bus.ports import Bus, StaleSequenceError
from dray.bus.topology import log_spec
from dray.domain.claims import Claim, last_attempt_before
from dray.domain.names import POOL_LABEL
from dray.kube.convert import claim_from, time_from
from dray.kube.ports import CLAIMS, POOLS, ConflictError, Kube, NotFoundError, Object
from dray.messages.base import Outgoing
from dray.messages.decisions import Opened, encode_record, log_stream, log_subject
from dray.messages.facts import DomainObserved
from dray.runtime.clock import Clock
from dray_claim_controller.deciding.opening import MustBegin, NextEpoch
from dray_claim_controller.domains.rules import recorded
from dray_claim_controller.execute.withdraw import Withdrawer
from dray_claim_controller.observe.publisher import Publisher
from dray_claim_controller.observe.seen import Key
from dray_claim_controller.observe.watching import Watching

_AT_ONCE = 16
_PROBED = 16


class Epochs:
    """The logs' epochs, as one leader's term knows them."""

    def __init__(
        self,
        bus: Bus,
        kube: Kube,
        watching: Watching,
        publisher: Publisher,
        clock: Clock,
        *,
        instance: str,
    ) -> None:
        self.opened: dict[str, int] = {}
        """Current epoch by domain."""
        self.closing: set[str] = set()
        """Domains without a pool whose decisions are being voided."""
        self._bus = bus
        self._kube = kube
        self._watching = watching
        self._publisher = publisher
        self._clock = clock
        self._instance = instance
        self._facts_created = ""
        self._withdrawer = Withdrawer(kube, watching)

    def facts_are(self, created: str) -> None:
        """The stream of facts, by its time of creation: a log that counts in another one is
        opened anew, also where the stream was made by a term that came no further."""
        self._facts_created = created

    def current(self, domain: str) -> int:
        """The domain's epoch; 0 before its log was opened in this term."""
        return self.opened.get(domain, 0)

    async def open(self, domain: str, seen_epoch: int = 0, seen_sequence: int = 0) -> int:
        """The domain's epoch, with its log there to be read; a new one if the log was lost.

        ``seen_sequence``: last record that this term has read of the log of ``seen_epoch``.
        Raises TemporaryError: try again; NotFoundError: the pool is gone.
        """
        pool = await self._kube.get(POOLS, domain)
        remembered = recorded(pool)
        state = await self._bus.state(log_stream(domain, remembered.epoch))
        question = MustBegin(
            domain=domain,
            remembered=remembered,
            state=state,
            seen_sequence=seen_sequence if seen_epoch == remembered.epoch else 0,
            facts_created=self._facts_created,
        )
        if self._watching.ask(question):
            epoch = await self._begin(domain, pool)
        else:
            epoch = remembered.epoch
        await self._write_opened(domain, epoch)
        self.opened[domain] = epoch
        await self._publisher.say(
            Key("domain", domain), DomainObserved(revision=epoch, domain=domain, epoch=epoch)
        )
        return epoch

    async def close(self, domain: str) -> None:
        """The pool is gone: nothing decided for it may be committed any more."""
        epoch = max(self.opened.get(domain, 0), self._publisher.domains().get(domain, 0))
        if not epoch:
            return
        self.closing.add(domain)
        # The executor refuses older epochs from now on, and others find the claims void.
        self.opened[domain] = epoch + 1
        await self._void_everything(domain, epoch + 1)
        del self.opened[domain]
        self.closing.remove(domain)
        await self._publisher.say(Key("domain", domain), None)

    async def close_orphans(self) -> None:
        """Close domains whose pool went while nobody led."""
        pools = self._watching.picture.plain[POOLS.plural]
        for domain in self._publisher.domains():
            if domain not in pools:
                await self.close(domain)

    async def _begin(self, domain: str, pool: Object) -> int:
        published = self._publisher.domains().get(domain, 0)
        claims = await self._claims(domain)
        created_unix_s = time_from(pool["metadata"].get("creationTimestamp"))
        question = NextEpoch(
            domain=domain,
            remembered=recorded(pool),
            published=published,
            attempts=tuple(claim.marked for claim in claims),
            inherited=tuple(
                claim.marked
                for claim in claims
                if claim.allocation is None and claim.created_unix_s < created_unix_s
            ),
            created_unix_s=created_unix_s,
        )
        epoch = self._watching.ask(question)
        epoch = await self._above_logs(domain, epoch, 1 if recorded(pool).epoch else _PROBED)
        log = {"epoch": epoch, "lastSequence": 0, "factsCreated": self._facts_created}
        patch = {
            "metadata": {"resourceVersion": pool["metadata"]["resourceVersion"]},
            "status": {"decisionLog": log},
        }
        answer = await self._kube.patch(POOLS, domain, patch, subresource="status")
        self._watching.answered(POOLS, answer)
        # From here on the executor refuses what older epochs decided.
        self.opened[domain] = epoch
        structlog.get_logger().info("new epoch", domain=domain, epoch=epoch, claims=len(claims))
        if epoch > 1:
            await self._void_everything(domain, epoch)
        await self._publisher.flush()
        await self._bus.ensure(log_spec(domain, epoch))
        return epoch

    async def _above_logs(self, domain: str, epoch: int, probed: int) -> int:
        """The first epoch above every log that is found, ``probed`` missing ones in a row ending
        the search: a pool that was deleted took its memory along, and of its logs one may be lost
        and a later one be there."""
        candidate = epoch
        while candidate < epoch + probed:
            if await self._bus.state(log_stream(domain, candidate)) is not None:
                epoch = candidate + 1
            candidate += 1
        return epoch

    async def _write_opened(self, domain: str, epoch: int) -> None:
        state = await self._bus.state(log_stream(domain, epoch))
        if state is None or state.last_sequence > 0:
            return
        record = Opened(
            domain=domain,
            epoch=epoch,
            writer=self._instance,
            facts_sequence=self._publisher.sequence,
            now_unix_s=self._publisher.now_unix_s(),
        )
        message = Outgoing(log_subject(domain, epoch), encode_record(record))
        try:
            await self._bus.append(message, expected_last=0)
        except StaleSequenceError:
            # Somebody else opened it, which is as good.
            return

    async def _claims(self, domain: str) -> list[Claim]:
        listed = await self._kube.list(CLAIMS, label_selector=f"{POOL_LABEL}={domain}")
        for obj in listed.objects:
            self._watching.answered(CLAIMS, obj)
        return [claim_from(obj) for obj in listed.objects]

    async def _void_everything(self, domain: str, epoch: int) -> None:
        """Void what older epochs decided on every claim that is not allocated.

        Also claims without a mark: an executor of the old epoch may be about to write its
        first patch, and this one moves the resourceVersion under it.
        """
        slots = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for claim in await self._claims(domain):
                group.create_task(self._void(claim, last_attempt_before(epoch), slots))

    async def _void(self, claim: Claim, attempt: int, slots: asyncio.Semaphore) -> None:
        async with slots:
            while True:
                seen = self._watching.picture.claims.get(claim.uid)
                if seen is None or seen.claim.allocation is not None:
                    return
                try:
                    await self._withdrawer.void(claim.uid, attempt)
                    return
                except ConflictError:
                    await self._watching.refresh_claim(claim.uid, claim.namespace, claim.name)
                except NotFoundError:
                    return
