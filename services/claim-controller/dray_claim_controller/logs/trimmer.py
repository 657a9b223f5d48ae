"""Trims decision logs, deletes those that nobody needs, and measures how full the store is.

A log is trimmed below a checkpoint that the leader has read to its end, and that is not the last
one. Before that, the domain's fact says where readers may begin: if another leader has superseded
this one, this fails, and nothing is trimmed. The checkpoint contains what is trimmed, so a late
trim by a former leader does no harm.
"""

from collections.abc import Awaitable, Callable, Mapping

import structlog

from dray.api.errors import PermanentError
from dray.bus.dead import notice
from dray.bus.ports import Bus, BusUnavailableError, StoreUse
from dray.bus.store_limit import store_problem
from dray.kube.ports import POOLS
from dray.messages.base import token
from dray.messages.decisions import LOG_PREFIX, log_stream
from dray.messages.facts import DomainObserved
from dray.runtime.clock import Clock
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.execution.decisions.executions import OpenExecutions
from dray_claim_controller.informers import Informers
from dray_claim_controller.logs.decisions.retention import Retention, is_over, kept
from dray_claim_controller.logs.epochs import Epochs
from dray_claim_controller.publication.publisher import Publisher, SupersededError


class LogTrimmer:
    """Trims the logs of one term."""

    def __init__(
        self,
        bus: Bus,
        informers: Informers,
        publisher: Publisher,
        epochs: Epochs,
        clock: Clock,
        *,
        executions: Callable[[], Mapping[str, OpenExecutions]],
        keep: Retention,
        every_s: float,
        store_bytes: int | None = None,
    ) -> None:
        """``executions``: the logs as they were read, by domain. ``store_bytes``: what the server
        may store, if the account has no limit."""
        self._bus = bus
        self._informers = informers
        self._publisher = publisher
        self._epochs = epochs
        self._clock = clock
        self._executions = executions
        self._keep = keep
        self._every_s = every_s
        self._store_bytes = store_bytes

    async def run(self) -> None:
        """Trim until cancelled. Raises SupersededError if another leads."""
        while True:
            await self._try(self.measure(), "*")
            await self._clock.sleep(self._every_s)
            for domain in tuple(self._executions()):
                await self._try(self.trim(domain), domain)
            await self._try(self.delete_old_logs(), "*")

    async def _try(self, work: Awaitable[None], domain: str) -> None:
        try:
            await work
        except SupersededError:
            raise
        except (BusUnavailableError, PermanentError) as error:
            structlog.get_logger().warning(
                "decision logs were not checked; trying again",
                domain=domain,
                why=str(error),
            )

    async def trim(self, domain: str) -> None:
        """Publish where readers of the domain's log may begin, then trim it.

        Raises BusUnavailableError.
        """
        state = await self._bus.state(log_stream(domain, self._epochs.current(domain)))
        read = self._executions().get(domain)
        if state is None or read is None or read.epoch != self._epochs.current(domain):
            return
        keep = kept(read.checkpoints, state.bytes, self._publisher.now_unix_s(), self._keep)
        read.checkpoints = keep.checkpoints
        await self._epochs.publish(domain, read.epoch, keep.checkpoints)
        if keep.first_sequence > state.first_sequence:
            await self._bus.purge(state.name, keep.first_sequence)
            structlog.get_logger().info(
                "a decision log was trimmed",
                domain=domain,
                epoch=read.epoch,
                first_sequence=keep.first_sequence,
                records=keep.first_sequence - state.first_sequence,
            )

    async def delete_old_logs(self) -> None:
        """Delete the logs of deleted pools, and those of old epochs.

        A fact remembers the last epoch of a deleted pool: one of the same name must not reuse it.
        Raises BusUnavailableError.
        """
        states = await self._bus.streams(LOG_PREFIX)
        living = self._living()
        for name in [state.name for state in states]:
            domain_token, _, number = name.removeprefix(LOG_PREFIX).rpartition("_")
            if not number.isdigit():
                continue
            epoch = int(number)
            domain = living.get(domain_token)
            if domain is None:
                await self._remember(domain_token.replace("_", "."), epoch)
                living = self._living()  # Pools may have come meanwhile.
                domain = living.get(domain_token)
            if domain is None or is_over(epoch, self._current(domain)):
                await self._bus.delete_stream(name)
                structlog.get_logger().info("an old decision log was deleted", stream=name)

    async def measure(self) -> None:
        """Measure how full the store is, and report it when it becomes nearly full."""
        use = await self._bus.store_use()
        if use.limit_bytes is None:
            use = StoreUse(use.bytes, self._store_bytes)
        before, self._publisher.store_use = self._publisher.store_use, use
        problem = store_problem(use)
        if problem is not None and store_problem(before) is None:
            structlog.get_logger().error("the NATS store is nearly full", why=problem)
            identity = f"store.{self._clock.now_unix_s():.0f}"
            await self._bus.publish(notice("store", problem, identity=identity))

    def _living(self) -> dict[str, str]:
        """Domains whose logs are followed, opened or closed, by their token."""
        names = (
            *self._informers.cache.plain[POOLS.plural],
            *self._publisher.domains(),
            *self._epochs.closing,
            *self._epochs.opened,
        )
        return {token(name): name for name in names}

    def _current(self, domain: str) -> int:
        """The epoch whose log is being read; 0: none."""
        read = self._executions().get(domain)
        current = self._epochs.current(domain)
        return current if read is not None and read.epoch == current else 0

    async def _remember(self, domain: str, epoch: int) -> None:
        known = self._publisher.domain(domain)
        if known is not None and known.epoch >= epoch:
            return
        fact = DomainObserved(revision=epoch, domain=domain, epoch=epoch, deleted=True)
        key = FactKey(DomainObserved.NAME, domain)
        await self._publisher.publish_fact(
            key, fact, unless=lambda: token(domain) in self._living()
        )
