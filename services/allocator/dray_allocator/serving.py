"""Which domains this replica serves: leases taken where they are free, and renewed.

A lease only keeps replicas from wasting work; the fence is the log's last sequence.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from dray.bus.ports import Bus, BusUnavailableError
from dray.messages.base import token
from dray.messages.decisions import log_stream
from dray_allocator.domain import Domain
from dray_allocator.events import Event, LogLost, Serve, StandBy
from dray_allocator.state import AllocatorState


class Serving:
    """The leases of one replica. ``hand`` gives the core an event."""

    def __init__(
        self,
        bus: Bus,
        state: AllocatorState,
        hand: Callable[[Event], Awaitable[None]],
        *,
        lease_ttl_s: float,
        lease_renewal_s: float,
    ) -> None:
        self.fault = ""
        """Why this replica may serve nothing until it is restarted."""
        self._bus = bus
        self._state = state
        self._hand = hand
        self._instance = state.rules.writer
        self._lease_ttl_s = lease_ttl_s
        self._lease_renewal_s = lease_renewal_s
        self._log = structlog.get_logger()
        self._served: dict[str, int] = {}
        self._leased: dict[str, None] = {}
        self._takes = 0
        self._wake = asyncio.Event()
        self._passed_over: tuple[str, ...] = ()
        """Domains that could not be served yet when the leases were last looked at."""

    def take_of(self, domain: str) -> int:
        """Which time of serving this is, 0 for none: tells late answers to earlier appends."""
        return self._served.get(domain, 0)

    def give_up(self, domain: str) -> None:
        """An append failed, or the domain is gone: the log is read again before serving it."""
        self._served.pop(domain, None)
        self._wake.set()

    def look(self) -> None:
        """After an event: hurry where a domain that was passed over can be served now."""
        domains = self._state.domains
        if any(name in domains and self._may_serve(domains[name]) for name in self._passed_over):
            self._passed_over = ()
            self._wake.set()

    async def run(self) -> None:
        """Take and renew until cancelled."""
        while True:
            self._wake.clear()
            for domain in tuple(self._state.domains.values()):
                if self._may_serve(domain):
                    await self._keep(domain)
            domains = self._state.domains.items()
            self._passed_over = tuple(name for name, one in domains if not self._may_serve(one))
            try:
                async with asyncio.timeout(self._lease_renewal_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def stand_by(self) -> None:
        """Serve nothing any more; the leases lapse, or are released."""
        for domain in tuple(self._served):
            await self._stand_by(domain)

    async def release(self) -> None:
        """Let another replica serve at once."""
        for domain in tuple(self._leased):
            await self._bus.release(_lease(domain), self._instance)

    def _may_serve(self, domain: Domain) -> bool:
        """A replica that has not read facts and the log's beginning leaves it to others."""
        readable = self._state.facts.synced and not self.fault
        return readable and not domain.lost and domain.current.sequence > 0

    async def _keep(self, domain: Domain) -> None:
        try:
            lease = _lease(domain.name)
            if not await self._bus.acquire(lease, self._instance, ttl_s=self._lease_ttl_s):
                self._leased.pop(domain.name, None)
                await self._stand_by(domain.name)
                return
            self._leased[domain.name] = None
            if domain.name not in self._served:
                await self._serve(domain)
        except BusUnavailableError as error:
            self._log.warning("the lease can't be kept", domain=domain.name, why=str(error))
            await self._stand_by(domain.name)

    async def _serve(self, domain: Domain) -> None:
        """Read up to the log's end before deciding anything."""
        state = await self._bus.state(log_stream(domain.name, domain.epoch))
        if self._state.domains.get(domain.name) is not domain:
            return
        if state is None:
            await self._hand(LogLost(domain.name, domain.epoch))
            return
        self._takes += 1
        self._served[domain.name] = self._takes
        self._log.info("serves", domain=domain.name, epoch=domain.epoch)
        await self._hand(Serve(domain.name, domain.epoch, state.last_sequence))

    async def _stand_by(self, domain: str) -> None:
        if self._served.pop(domain, None) is not None:
            self._log.info("stands by", domain=domain)
            await self._hand(StandBy(domain))


def _lease(domain: str) -> str:
    return f"domain.{token(domain)}"
