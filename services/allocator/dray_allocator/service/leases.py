"""Which domains this replica serves: leases taken where they are free, renewed, and given up where
another replica has fewer.

A lease only keeps replicas from wasting work; the fence is the log's last sequence.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from dray.api.errors import DrayError, PermanentError
from dray.bus.dead import notice
from dray.bus.ports import Bus, BusUnavailableError
from dray.messages.base import token
from dray.messages.decisions import log_stream
from dray_allocator.state.domain import Domain
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import Event, LogLost, Serve, StandBy

_SEATS: Final = "replica."
_LOOKS: Final = 4
"""How often it is looked for others, and for domains that they gave up, between two renewals."""


class LeaseHolder:
    """The leases of one replica.

    ``hand`` gives the core an event. ``subscribe`` gets, after each turn, the pools whose facts and
    logs are to be read (None: all).
    """

    def __init__(
        self,
        bus: Bus,
        state: AllocatorState,
        hand: Callable[[Event], Awaitable[None]],
        *,
        subscribe: Callable[[tuple[str, ...] | None], None] = lambda _: None,
        lease_ttl_s: float,
        lease_renewal_s: float,
    ) -> None:
        self.undecodable: dict[str, str] = {}
        """Domains that this replica must leave to others, and why: a message of a newer release."""
        self._bus = bus
        self._state = state
        self._hand = hand
        self._subscribe = subscribe
        self._instance = state.rules.writer
        self._lease_ttl_s = lease_ttl_s
        self._lease_renewal_s = lease_renewal_s
        self._log = structlog.get_logger()
        self._served: dict[str, int] = {}
        self._leased: dict[str, None] = {}
        self._leaving: dict[str, None] = {}
        """Domains that are handed over: nothing is decided any more, but appends are under way."""
        self._seat = f"{_SEATS}{token(self._instance)}"
        self._is_able = False
        """Whether everything was read, so that it could decide."""
        self._is_counted = False
        """Whether others count it as one of those that share the work."""
        self._replicas = 1
        self._others: int | None = None
        """Other replicas that can serve; None: they were not counted yet."""
        self._due_s = 0.0
        """When the leases are to be renewed, by the loop's clock."""
        self._counted_s = -lease_renewal_s
        """When replicas were counted last."""
        self._takes = 0
        self._wake = asyncio.Event()
        self._unkept: dict[str, None] = {}
        """Domains whose lost lease was logged: it is logged once."""
        self._passed_over: tuple[str, ...] = ()
        """Domains that could not be served yet when the leases were last looked at."""

    def take_of(self, domain: str) -> int:
        """Which time of serving this is, 0 for none: tells late answers to earlier appends."""
        return self._served.get(domain, 0)

    def give_up(self, domain: str) -> None:
        """An append failed, or the domain is gone: the log is read again before serving it."""
        self._served.pop(domain, None)
        self._wake.set()

    def hurry(self) -> None:
        """Look at once what may be served."""
        self._wake.set()

    def look(self) -> None:
        """After an event: hurry where a domain that was passed over can be served now."""
        if not self._passed_over:
            return
        domains = self._domains()
        if any(name in domains and self._may_serve(domains[name]) for name in self._passed_over):
            self._passed_over = ()
            self._wake.set()

    async def run(self) -> None:
        """Take, renew and hand over until cancelled."""
        while True:
            self._wake.clear()
            await self._turn()
            if self._others is not None:
                self._subscribe(self._wanted(self._others))
            domains = self._domains().items()
            self._passed_over = tuple(name for name, one in domains if not self._may_serve(one))
            try:
                async with asyncio.timeout(self._lease_renewal_s / _LOOKS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def stand_by(self) -> None:
        """Serve nothing any more; the leases lapse, or are released."""
        for domain in tuple(self._served):
            await self._stand_by(domain)

    async def release(self) -> None:
        """Let other replicas serve at once."""
        for domain in tuple(self._leased):
            await self._bus.release(_lease(domain), self._instance)
        await self._bus.release(self._seat, self._instance)

    def _domains(self) -> dict[str, Domain]:
        """All there are, whichever replica serves them."""
        return {**self._state.domains, **self._state.elsewhere}

    def _may_serve(self, domain: Domain) -> bool:
        """A replica that has not read facts and the log's beginning leaves it to others."""
        readable = self._state.facts.synced and not self._state.undecodable_for(domain.name)
        if not readable or domain.lost:
            return False
        return not self._state.subscriptions.everything or domain.current.sequence > 0

    async def _turn(self) -> None:
        """Renew what is due, hand over what is more than a fair share, take what is less."""
        await self._leave_undecodable()
        now_s = asyncio.get_running_loop().time()
        is_due = now_s >= self._due_s
        if is_due:
            self._due_s = now_s + self._lease_renewal_s
        if now_s >= self._counted_s + self._lease_renewal_s / _LOOKS:
            self._counted_s = now_s
            await self._count_replicas(is_due)
        for domain in self._domains().values():
            if not self._may_serve(domain):
                if not (domain.lost and await self._holds_on(domain, is_due)):
                    self._leased.pop(domain.name, None)
            elif domain.name in self._leaving:
                continue
            elif domain.name in self._leased or domain.name in self._served:
                if is_due or domain.name not in self._served:
                    await self._keep(domain)
            elif self._wants(is_due):
                await self._keep(domain)
        await self._hand_over()

    async def _leave_undecodable(self) -> None:
        """Give the leases of domains back that only a newer release can decide upon."""
        found = {
            name: why for name in self._domains() if (why := self._state.undecodable_for(name))
        }
        for name, why in found.items():
            if name not in self.undecodable:
                await self._report(name, why)
            if name in self._leased or name in self._served:
                await self._stand_by(name)
                self._leaving[name] = None
        for name in self.undecodable:
            if name not in found:
                self._log.info("may serve again", domain=name)
        self.undecodable = found

    async def _report(self, domain: str, why: str) -> None:
        self._log.error("leaves a pool to others, which it can't read", domain=domain, why=why)
        reason = f"allocator {self._instance} does not serve pool {domain}: {why}"
        about = f"allocator.{token(domain)}"
        letter = notice(about, reason, identity=f"{self._instance}.{domain}")
        try:
            await self._bus.publish(letter)
        except DrayError as error:
            self._log.warning("a notice was not published", why=str(error))

    async def _count_replicas(self, is_due: bool) -> None:
        """Who can serve says so by a lease of its own; who can't isn't counted, nor who can't serve
        all: what it must leave to others would count as its share."""
        try:
            was_counted = self._is_counted
            self._is_able = self._can_serve()
            self._is_counted = self._is_able and not self.undecodable
            if self._is_counted and (is_due or not was_counted):
                await self._acquire(self._seat)
            elif was_counted and not self._is_counted:
                await self._bus.release(self._seat, self._instance)
            seats = await self._bus.leases(_SEATS)
            self._replicas = max(1, len(seats))
            self._others = len([seat for seat in seats if seat != self._seat])
        except BusUnavailableError as error:
            self._log.debug("the other replicas can't be counted", why=str(error))

    def _can_serve(self) -> bool:
        """A replica that subscribes to everything reads all of it before it holds a lease."""
        if not self._state.facts.synced:
            return False
        partial = not self._state.subscriptions.everything
        return partial or self._is_able or self._state.has_read_all_logs()

    def _wanted(self, others: int) -> tuple[str, ...] | None:
        """The pools that are served, or are about to be, and all that have a say in them.

        Everything, where nobody shares the work, or others have all of it: who serves nothing
        stands by with all in mind. Also where the dependencies of a pool are unknown.
        """
        state, domains = self._state, self._domains()
        ours = {**self._leased, **self._served, **self._leaving}
        served = [name for name in domains if name in ours]
        idle = not served and 0 < len(domains) <= others
        unclear = state.published.spans_nodes or any(one.unnamed for one in domains.values())
        if not others or idle or unclear or 0 < len(served) == len(domains):
            return None
        return tuple(sorted({pool for name in served for pool in state.ties.of(name)}))

    async def _holds_on(self, domain: Domain, is_due: bool) -> bool:
        """Whether the lease on a domain whose log is lost is still this replica's: who served it
        waits for its next log."""
        if domain.name not in self._leased or self._state.subscriptions.everything:
            return False
        if not is_due:
            return True
        try:
            return await self._acquire(_lease(domain.name))
        except BusUnavailableError:
            return False

    def _wants(self, is_due: bool) -> bool:
        """Below its fair share a replica asks often, and up to it now and then."""
        if not self._is_able:
            return False
        held, domains = len(self._held()), len(self._domains())
        return held < domains // self._replicas or (is_due and held < self._most())

    def _most(self) -> int:
        return -(-len(self._domains()) // self._replicas)

    def _held(self) -> list[str]:
        """The domains that this replica serves or may serve, save those that it hands over."""
        domains = self._domains()
        return [name for name in self._leased if name in domains and name not in self._leaving]

    async def _hand_over(self) -> None:
        """Stand by for what is too much; the lease goes once all appends are answered, so that
        the next one is not met by them."""
        for domain in self._held()[self._most() :]:
            await self._stand_by(domain)
            self._leaving[domain] = None
        for name in tuple(self._leaving):
            known = self._state.domains.get(name)
            if known is not None and known.appended:
                continue
            del self._leaving[name]
            self._leased.pop(name, None)
            try:
                await self._bus.release(_lease(name), self._instance)
            except DrayError as error:
                self._log.warning("a lease can't be given up; it lapses", why=str(error))

    async def _keep(self, domain: Domain) -> None:
        try:
            is_ours = await self._acquire(_lease(domain.name))
            self._unkept.pop(domain.name, None)
            if not is_ours:
                self._leased.pop(domain.name, None)
                await self._stand_by(domain.name)
                return
            self._leased[domain.name] = None
            if domain.name not in self._served and domain.name in self._state.domains:
                await self._serve(domain)
        except BusUnavailableError as error:
            if domain.name not in self._unkept:
                self._unkept[domain.name] = None
                self._log.warning("the lease can't be kept", domain=domain.name, why=str(error))
            await self._stand_by(domain.name)

    async def _acquire(self, lease: str) -> bool:
        """Take or renew a lease. Raises BusUnavailableError also where the bus refuses it, as one
        whose account is full does: it is asked again as one that is away."""
        try:
            return await self._bus.acquire(lease, self._instance, ttl_s=self._lease_ttl_s)
        except PermanentError as error:
            raise BusUnavailableError(str(error)) from error

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
