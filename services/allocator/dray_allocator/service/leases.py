"""The leases of a replica: take free ones, renew them, and release those above a fair share.

A lease only saves work; a log is protected by its last sequence.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from dray.api.errors import DrayError, PermanentError
from dray.bus.dead import notice
from dray.bus.ports import Bus, BusUnavailableError
from dray.messages.base import token
from dray.messages.decisions import domain_lease, log_stream
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import Event, LogLost, RecordSeen, Serve, StandBy

_REPLICAS: Final = "replica."
_AT_ONCE: Final = 1024
"""The maximum number of leases that are asked for together. A server that syncs each write stores
some 3 000 leases a second."""
_RETRIED: Final = 16
"""The maximum number of skipped domains that are looked at after an event."""
_LOOKS: Final = 4
"""How many times per renewal period other replicas are counted, free domains are looked for, and a
part of the leases is renewed."""


def _part_of(domain: str) -> int:
    """The part of the leases that a domain's lease is in."""
    return zlib.crc32(domain.encode()) % _LOOKS


class LeaseHolder:
    """The leases of one replica.

    ``dispatch`` gives the core an event. ``subscribe`` gets, after each turn, the pools whose facts
    and logs are to be read (None: all).
    """

    def __init__(
        self,
        bus: Bus,
        state: AllocatorState,
        dispatch: Callable[[Event], Awaitable[None]],
        *,
        subscribe: Callable[[tuple[str, ...] | None], None] = lambda _: None,
        lease_ttl_s: float,
        lease_renewal_s: float,
    ) -> None:
        self.undecodable: dict[str, str] = {}
        """Domains that this replica must leave to others, and why: a message of a newer release."""
        self._bus = bus
        self._state = state
        self._dispatch = dispatch
        self._subscribe = subscribe
        self._instance = state.options.writer
        self._lease_ttl_s = lease_ttl_s
        self._lease_renewal_s = lease_renewal_s
        self._log = structlog.get_logger()
        self._served: dict[str, None] = {}
        self._leased: dict[str, None] = {}
        self._leaving: dict[str, None] = {}
        """Domains that are being released: nothing is decided, but some appends have no answer."""
        self._replica_lease = f"{_REPLICAS}{token(self._instance)}"
        self._is_able = False
        """Whether enough was read to decide."""
        self._is_counted = False
        """Whether other replicas count this one."""
        self._replicas = 1
        self._others: int | None = None
        """Other replicas that can serve; None: not counted yet."""
        self._due_s = [0.0] * _LOOKS
        """When each part of the leases is to be renewed, by the loop's clock. Because leases are
        renewed in parts, no lease waits for a thousand others."""
        self._counted_s = -lease_renewal_s
        """When replicas were counted last."""
        self._wake = asyncio.Event()
        self._not_renewed: dict[str, None] = {}
        """Domains whose failed renewal was logged."""
        self.skipped: tuple[str, ...] = ()
        """Domains that could not be served at the last turn."""

    def give_up(self, domain: str) -> None:
        """Stop serving after a failed append or a lost domain, until the log is read again."""
        self._served.pop(domain, None)
        self._wake.set()

    def hurry(self) -> None:
        """Start the next turn at once."""
        self._wake.set()

    def retry_skipped(self, event: Event) -> None:
        """After an event, start the next turn if a skipped domain can be served now. Only a few are
        looked at; the next turn looks at all of them."""
        names = self.skipped[:_RETRIED]
        if isinstance(event, RecordSeen) and event.domain in self.skipped:
            names = (event.domain,)
        for name in names:
            domain = self._state.domains.get(name) or self._state.unread_domains.get(name)
            if domain is not None and self._may_serve(domain):
                self.skipped = ()
                self._wake.set()
                return

    async def run(self) -> None:
        """Take, renew and hand over until cancelled."""
        while True:
            self._wake.clear()
            await self._turn()
            if self._others is not None:
                self._subscribe(self._wanted(self._others))
            domains = self._domains().items()
            self.skipped = tuple(name for name, one in domains if not self._may_serve(one))
            try:
                async with asyncio.timeout(self._lease_renewal_s / _LOOKS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def stand_by(self) -> None:
        """Stop serving; the leases expire unless they are released."""
        for domain in tuple(self._served):
            await self._stand_by(domain)

    async def release(self) -> None:
        """Release all leases."""
        for domain in tuple(self._leased):
            await self._bus.release(domain_lease(domain), self._instance)
        await self._bus.release(self._replica_lease, self._instance)

    def _domains(self) -> dict[str, SchedulingDomain]:
        """All domains, whichever replica serves them."""
        return {**self._state.domains, **self._state.unread_domains}

    def _may_serve(self, domain: SchedulingDomain) -> bool:
        """Whether the facts and the beginning of the log are read."""
        readable = self._state.facts.synced and not self._state.undecodable_for(domain.name)
        if not readable or domain.lost:
            return False
        return not self._state.subscriptions.everything or domain.current.sequence > 0

    async def _turn(self) -> None:
        """Renew the leases that are due, take free ones, and release those above a fair share."""
        await self._leave_undecodable()
        now_s = asyncio.get_running_loop().time()
        due = self._due_parts(now_s)
        is_due = 0 in due
        if now_s >= self._counted_s + self._lease_renewal_s / _LOOKS:
            self._counted_s = now_s
            await self._count_replicas(is_due)
        leased: list[SchedulingDomain] = []
        free: list[SchedulingDomain] = []
        for domain in self._domains().values():
            if not self._may_serve(domain):
                if not (domain.lost and await self._holds_on(domain, is_due)):
                    self._leased.pop(domain.name, None)
            elif domain.name in self._leaving:
                continue
            elif domain.name not in self._leased and domain.name not in self._served:
                free.append(domain)
            elif _part_of(domain.name) in due or domain.name not in self._served:
                leased.append(domain)
        while leased:
            await self._keep(leased[:_AT_ONCE])
            del leased[:_AT_ONCE]
        while free and (room := self._room(is_due)) > 0:
            at_once = min(room, _AT_ONCE)
            await self._keep(free[:at_once])
            del free[:at_once]
        await self._hand_over()

    def _due_parts(self, now_s: float) -> list[int]:
        """The parts of the leases that are to be renewed now."""
        due = [part for part, at_s in enumerate(self._due_s) if now_s >= at_s]
        rest_s = self._lease_renewal_s / _LOOKS
        for part in due:
            # All parts are due at first; later, each part is due in a turn of its own.
            is_first = self._due_s[part] == 0.0
            self._due_s[part] = now_s + (rest_s * (part + 1) if is_first else self._lease_renewal_s)
        return due

    async def _leave_undecodable(self) -> None:
        """Release the domains that only a newer release can decide upon."""
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
                self._log.info("domain can be served again", domain=name)
        self.undecodable = found

    async def _report(self, domain: str, why: str) -> None:
        self._log.error(
            "pool left to other replicas: its messages can't be decoded", domain=domain, why=why
        )
        reason = f"allocator {self._instance} does not serve pool {domain}: {why}"
        about = f"allocator.{token(domain)}"
        message = notice(about, reason, identity=f"{self._instance}.{domain}")
        try:
            await self._bus.publish(message)
        except DrayError as error:
            self._log.warning("a notice was not published", why=str(error))

    async def _count_replicas(self, is_due: bool) -> None:
        """Count the replicas that can serve every domain: each holds a lease of its own."""
        try:
            was_counted = self._is_counted
            self._is_able = self._can_serve()
            self._is_counted = self._is_able and not self.undecodable
            if self._is_counted and (is_due or not was_counted):
                await self._acquire(self._replica_lease)
            elif was_counted and not self._is_counted:
                await self._bus.release(self._replica_lease, self._instance)
            leases = await self._bus.leases(_REPLICAS)
            self._replicas = max(1, len(leases))
            self._others = len([one for one in leases if one != self._replica_lease])
        except BusUnavailableError as error:
            self._log.debug("the other replicas can't be counted", why=str(error))

    def _can_serve(self) -> bool:
        """Whether this replica can serve domains. One that subscribes to everything must read all
        of it before it holds a lease."""
        if not self._state.facts.synced:
            return False
        partial = not self._state.subscriptions.everything
        return partial or self._is_able or self._state.has_read_all_logs()

    def _wanted(self, others: int) -> tuple[str, ...] | None:
        """The pools that are served or about to be, and the pools that they depend on.

        None (all pools) for a single replica, for one that stands by without a domain, and while
        the dependencies of a pool are unknown.
        """
        state, domains = self._state, self._domains()
        ours = {**self._leased, **self._served, **self._leaving}
        served = [name for name in domains if name in ours]
        idle = not served and 0 < len(domains) <= others
        unclear = state.published.shared_pools or any(one.unnamed for one in domains.values())
        if not others or idle or unclear or 0 < len(served) == len(domains):
            return None
        return tuple(sorted({pool for name in served for pool in state.pool_dependencies.of(name)}))

    async def _holds_on(self, domain: SchedulingDomain, is_due: bool) -> bool:
        """Keep the lease of a domain whose log is lost, and wait for its next log."""
        if domain.name not in self._leased or self._state.subscriptions.everything:
            return False
        if not is_due:
            return True
        try:
            return await self._acquire(domain_lease(domain.name))
        except BusUnavailableError:
            return False

    def _room(self, is_due: bool) -> int:
        """How many leases to take: up to the fair share, which is rounded up if a renewal of the
        first part is due, else rounded down."""
        if not self._is_able:
            return 0
        share = self._most() if is_due else len(self._domains()) // self._replicas
        return share - len(self._served_domains())

    def _most(self) -> int:
        return -(-len(self._domains()) // self._replicas)

    def _served_domains(self) -> list[str]:
        """The leased domains, without those that are being released."""
        domains = self._domains()
        return [name for name in self._leased if name in domains and name not in self._leaving]

    async def _hand_over(self) -> None:
        """Stop serving the surplus; release each lease once all appends are answered, so that they
        don't collide with those of the next replica."""
        for domain in self._served_domains()[self._most() :]:
            await self._stand_by(domain)
            self._leaving[domain] = None
        for name in tuple(self._leaving):
            known = self._state.domains.get(name)
            if known is not None and known.appended:
                continue
            del self._leaving[name]
            self._leased.pop(name, None)
            try:
                await self._bus.release(domain_lease(name), self._instance)
            except DrayError as error:
                self._log.warning("a lease can't be released; it expires", why=str(error))

    async def _keep(self, domains: Sequence[SchedulingDomain]) -> None:
        """Take or renew leases, all at once, because each of them waits for the server's disk."""
        keys = [domain_lease(domain.name) for domain in domains]
        outcomes = await self._bus.acquire_all(keys, self._instance, ttl_s=self._lease_ttl_s)
        async with asyncio.TaskGroup() as group:  # The end of each new log is asked for.
            for domain, outcome in zip(domains, outcomes, strict=True):
                group.create_task(self._apply_outcome(domain, outcome))

    async def _apply_outcome(self, domain: SchedulingDomain, outcome: bool | DrayError) -> None:
        """Serve a domain if its lease is ours, else stop serving it. If the bus is away or refuses
        the lease (an account that is full), it is asked again."""
        if isinstance(outcome, DrayError):
            await self._not_kept(domain, outcome)
            return
        self._not_renewed.pop(domain.name, None)
        if not outcome:
            self._leased.pop(domain.name, None)
            await self._stand_by(domain.name)
            return
        self._leased[domain.name] = None
        if domain.name not in self._served and domain.name in self._state.domains:
            try:
                await self._serve(domain)
            except BusUnavailableError as error:
                await self._not_kept(domain, error)

    async def _not_kept(self, domain: SchedulingDomain, error: DrayError) -> None:
        if domain.name not in self._not_renewed:
            self._not_renewed[domain.name] = None
            self._log.warning("the lease can't be renewed", domain=domain.name, why=str(error))
        await self._stand_by(domain.name)

    async def _acquire(self, lease: str) -> bool:
        """Take or renew a lease.

        Raises:
            BusUnavailableError: the bus is away or refuses it (an account that is full); the
                lease is asked for again.
        """
        try:
            return await self._bus.acquire(lease, self._instance, ttl_s=self._lease_ttl_s)
        except PermanentError as error:
            raise BusUnavailableError(str(error)) from error

    async def _serve(self, domain: SchedulingDomain) -> None:
        """Read up to the log's end before deciding anything."""
        state = await self._bus.state(log_stream(domain.name, domain.epoch))
        if self._state.domains.get(domain.name) is not domain:
            return
        if state is None:
            await self._dispatch(LogLost(domain.name, domain.epoch))
            return
        self._served[domain.name] = None
        self._log.info("serving a domain", domain=domain.name, epoch=domain.epoch)
        await self._dispatch(Serve(domain.name, domain.epoch, state.last_sequence))

    async def _stand_by(self, domain: str) -> None:
        if domain in self._served:
            del self._served[domain]
            self._log.info("stopped serving a domain", domain=domain)
            await self._dispatch(StandBy(domain))
