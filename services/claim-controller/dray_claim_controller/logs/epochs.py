"""Opens decision logs. Only the leader does, and always in the same order.

It writes the epoch into the pool's status and void marks on every unallocated claim, publishes the
claims' facts, creates the stream with ``opened``, then publishes the domain's fact. A claim that
can't be written delays this only for a short time: its attempts are given up (docs/adr/0030).
"""

import asyncio
import contextlib
from typing import Final

import structlog

from dray.api.claims import Claim, last_attempt_before
from dray.api.errors import TemporaryError
from dray.api.names import POOL_FINALIZER, POOL_LABEL
from dray.bus.ports import Bus, StaleSequenceError
from dray.bus.topology import log_spec
from dray.kube.convert import time_from
from dray.kube.ports import POOLS, Kube, KubeError, Object
from dray.messages.base import Outgoing
from dray.messages.decisions import Opened, encode_record, log_stream, log_subject
from dray.messages.facts import CheckpointPosition, DomainObserved
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.stored_pool_status import remembered_log
from dray_claim_controller.execution.rollback import VoidWriter
from dray_claim_controller.informers import Informers
from dray_claim_controller.leader.lease import LeaseExpiredError
from dray_claim_controller.logs.decisions.rules import NextEpoch, ReopenCheck
from dray_claim_controller.publication.publisher import Publisher
from dray_claim_controller.work_queue import FairSlots

_AT_ONCE = 16
_PROBED = 16
_PATIENCE_S: Final = 15.0
"""How long the void of one claim is tried before its attempts are given up."""
_FIRST_S: Final = 0.05
_MOST_S: Final = 2.0


class PoolInUseError(TemporaryError):
    """A pool that is gone can't be closed yet."""


class Epochs:
    """The logs' epochs, as one leader's term knows them."""

    def __init__(
        self,
        bus: Bus,
        kube: Kube,
        informers: Informers,
        publisher: Publisher,
        clock: Clock,
        voids: VoidWriter,
        *,
        instance: str,
    ) -> None:
        self.opened: dict[str, int] = {}
        """Current epoch by domain."""
        self.closing: set[str] = set()
        """Domains without a pool whose decisions are being voided."""
        self.lost: dict[str, int] = {}
        """By domain, the epoch of a log that was found to be lost. It counts as lost even if it has
        grown since past what it had lost."""
        self._bus = bus
        self._kube = kube
        self._informers = informers
        self._publisher = publisher
        self._clock = clock
        self._instance = instance
        self._facts_created = ""
        self._voids = voids
        self._slots = FairSlots(clock, _AT_ONCE)

    def facts_are(self, created: str) -> None:
        """Set the creation time of the facts' stream. A log that refers to another stream gets a
        new epoch, even if the term that created the stream got no further."""
        self._facts_created = created

    def current(self, domain: str) -> int:
        """The domain's epoch; 0 before its log was opened in this term."""
        return self.opened.get(domain, 0)

    async def open(self, domain: str, seen_epoch: int = 0, seen_sequence: int = 0) -> int:
        """The domain's epoch, with its log there to be read; a new one if the log was lost.

        ``seen_sequence``: last record that this term has read of the log of ``seen_epoch``.
        Raises TemporaryError, KubeError: try again; NotFoundError: the pool may be gone.
        """
        pool = await self._keep(await self._kube.get(POOLS, domain))
        remembered = remembered_log(pool)
        seen = seen_sequence if seen_epoch == remembered.epoch else 0
        published = self._publisher.domain(domain)
        if published and published.checkpoints and published.epoch == remembered.epoch:
            seen = max(seen, published.start)
        state = await self._bus.state(log_stream(domain, remembered.epoch))
        rule = ReopenCheck(
            domain=domain,
            remembered=remembered,
            state=state,
            seen_sequence=seen,
            facts_created=self._facts_created,
        )
        if self.lost.get(domain) == remembered.epoch or self._informers.evaluate(rule):
            self.lost[domain] = remembered.epoch
            epoch = await self._begin(domain, pool)
        else:
            epoch = remembered.epoch
        await self._write_opened(domain, epoch)
        self.opened[domain] = epoch
        checkpoints = published.checkpoints if published and published.epoch == epoch else ()
        await self.publish(domain, epoch, checkpoints)
        return epoch

    async def publish(
        self, domain: str, epoch: int, checkpoints: tuple[CheckpointPosition, ...]
    ) -> None:
        """Publish the epoch and where readers of its log may begin, if it is the current one."""
        fact = DomainObserved(revision=epoch, domain=domain, epoch=epoch, checkpoints=checkpoints)
        await self._publisher.publish_fact(
            FactKey("domain", domain), fact, unless=lambda: self.current(domain) != epoch
        )

    async def _keep(self, pool: Object) -> Object:
        """The pool with dray's finalizer, which it gets before anything is decided in it."""
        metadata = pool["metadata"]
        known = metadata.get("finalizers") or []
        if POOL_FINALIZER in known or metadata.get("deletionTimestamp"):
            return pool
        fence = {"resourceVersion": metadata["resourceVersion"]}
        patch = {"metadata": {**fence, "finalizers": [*known, POOL_FINALIZER]}}
        kept = await self._kube.patch(POOLS, metadata["name"], patch)
        self._informers.apply_response(POOLS, kept)
        return kept

    def begin_closing(self, domain: str) -> None:
        """The pool is gone: nothing decided for it is carried out from now on, and its nodes stay
        its own until it is closed."""
        if domain in self.closing:
            return
        epoch = max(self.opened.get(domain, 0), self._publisher.domains().get(domain, 0))
        if epoch:
            self.closing.add(domain)
            # The executor refuses older epochs from now on, and others find the claims void.
            self.opened[domain] = epoch + 1

    async def close(self, domain: str) -> None:
        """Void what was decided for a pool that is gone. Raises TemporaryError, KubeError: try
        again."""
        self.begin_closing(domain)
        if domain not in self.closing:
            return
        await self._void_everything(domain, self.opened[domain])
        if (claim := self._may_still_be_committed(domain)) is not None:
            # Another pool would take the node and assume that the claim's devices are free.
            raise PoolInUseError(
                f"GPUPool {domain} was deleted while claim {claim.namespace}/{claim.name} was "
                "being allocated, and the claim can't be written: no other pool gets its nodes "
                "until the claim can be written, or is deleted"
            )
        del self.opened[domain]
        self.closing.remove(domain)
        await self._publisher.publish_fact(FactKey("domain", domain), None)

    def orphans(self) -> list[str]:
        """Domains whose pool went while nobody led."""
        pools = self._informers.cache.plain[POOLS.plural]
        return [domain for domain in self._publisher.domains() if domain not in pools]

    async def _begin(self, domain: str, pool: Object) -> int:
        known = self._publisher.domain(domain)
        published = known.epoch if known is not None else 0
        claims = await self._claims(domain)
        created_unix_s = time_from(pool["metadata"].get("creationTimestamp"))
        rule = NextEpoch(
            domain=domain,
            remembered=remembered_log(pool),
            published=published,
            attempts=tuple(claim.marked for claim in claims),
            inherited=tuple(
                claim.marked
                for claim in claims
                if claim.allocation is None and claim.created_unix_s < created_unix_s
            ),
            created_unix_s=created_unix_s,
        )
        epoch = self._informers.evaluate(rule)
        epoch = await self._above_logs(domain, epoch, 1 if remembered_log(pool).epoch else _PROBED)
        log = {"epoch": epoch, "lastSequence": 0, "factsCreated": self._facts_created}
        patch = {
            "metadata": {"resourceVersion": pool["metadata"]["resourceVersion"]},
            "status": {"decisionLog": log},
        }
        answer = await self._kube.patch(POOLS, domain, patch, subresource="status")
        self._informers.apply_response(POOLS, answer)
        # From here on the executor refuses what older epochs decided.
        self.opened[domain] = epoch
        structlog.get_logger().info("new epoch", domain=domain, epoch=epoch, claims=len(claims))
        if epoch > 1:
            await self._void_everything(domain, epoch)
        await self._publisher.flush()
        await self._bus.ensure(log_spec(domain, epoch))
        return epoch

    async def _above_logs(self, domain: str, epoch: int, probed: int) -> int:
        """The first epoch above every log that is found. The search ends after ``probed`` missing
        logs in a row: nothing is remembered of a deleted pool, and one of its logs may be lost
        although a later one is there."""
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
        return await self._informers.list_claims(f"{POOL_LABEL}={domain}")

    async def _void_everything(self, domain: str, epoch: int) -> None:
        """Void what older epochs decided on every claim that is not allocated.

        This includes claims without a mark: an executor of the old epoch may be about to write its
        first patch, and the void changes the resourceVersion that fences this patch.
        """
        async with asyncio.TaskGroup() as group:
            for claim in await self._claims(domain):
                work = self._void(claim, last_attempt_before(epoch))
                group.create_task(work, name=f"void-epoch {claim.uid}")

    def _may_still_be_committed(self, domain: str) -> Claim | None:
        cache = self._informers.cache
        for uid, record in cache.given_up.items():
            cached = cache.claims.get(uid)
            if cached is not None and cached.claim.pool == domain and record.void < record.attempt:
                return cached.claim
        return None

    async def _void(self, claim: Claim, attempt: int) -> None:
        """Repeat until the claim is void, gone, allocated, or given up."""
        backoff = Backoff(_FIRST_S, _MOST_S)
        until_s = self._clock.monotonic_s() + _PATIENCE_S
        while True:
            is_last_try = self._clock.monotonic_s() >= until_s
            rest_s = None
            async with self._slots.held(claim.namespace):
                cached = self._informers.cache.claims.get(claim.uid)
                if cached is None or cached.claim.allocation is not None:
                    return
                try:
                    await self._voids.void(claim.uid, attempt, is_last_try=is_last_try)
                    return
                except (KubeError, LeaseExpiredError) as error:
                    rest_s = backoff.next_s(getattr(error, "retry_after_s", 0.0))
                with contextlib.suppress(KubeError):
                    await self._informers.refresh_claim(claim.uid, claim.namespace, claim.name)
            await self._clock.sleep(rest_s)
