"""Leads while the Lease ``dray-claim-controller`` is ours."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from dray.api.errors import DrayError
from dray.kube.ports import (
    LEASES,
    AlreadyExistsError,
    ConflictError,
    Kube,
    KubeError,
    KubeUnavailableError,
    NotFoundError,
    Object,
)
from dray.runtime.clock import Clock
from dray_claim_controller.leader.decisions import (
    Observation,
    lease_spec,
    may_take,
    new_lease,
    observe,
)
from dray_claim_controller.leader.lease import HeldLease


@dataclass(frozen=True, slots=True)
class Timing:
    """Lease, renewal deadline and retry, in seconds; each shorter than the one before."""

    lease_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0


class Election:
    """Stands for election for ever; runs the term while elected."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        *,
        name: str,
        namespace: str,
        identity: str,
        timing: Timing,
    ) -> None:
        self.leading = False
        self.problem: str | None = "the API server was not asked yet"
        """Why the API server can't be reached, or None."""
        self.held = HeldLease(clock, lease_s=timing.lease_s, renew_s=timing.renew_s)
        self._kube = kube
        self._clock = clock
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._timing = timing
        self._seen: Observation | None = None
        self._unknown = 0
        """Writes of the Lease in a row whose outcome is unknown."""

    async def run(self, term: Callable[[], Awaitable[None]]) -> None:
        """Stand, lead, and stand again, until cancelled; then give the Lease up."""
        try:
            while True:
                if await self._try():
                    await self._lead(term)
                else:
                    await self._clock.sleep(self._rest_s())
        finally:
            with contextlib.suppress(DrayError, TimeoutError):
                async with asyncio.timeout(2.0):
                    await self._give_up()

    async def _lead(self, term: Callable[[], Awaitable[None]]) -> None:
        structlog.get_logger().info("leading", identity=self._identity)
        self.leading = True
        work = asyncio.ensure_future(term())
        renewal = asyncio.create_task(self._renew(), name="renew-lease")
        try:
            await asyncio.wait([work, renewal], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.leading = False
            self.held.give_up()
            work.cancel()
            renewal.cancel()
            results = await asyncio.gather(work, renewal, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        structlog.get_logger().warning("no longer leading", identity=self._identity)

    async def _renew(self) -> None:
        """Returns when the Lease could not be renewed in time, or another holds it.

        A silent API server may answer later than the Lease lasts, or never. So each try waits until
        the deadline, or for the time between two tries if that is longer. A Lease that another has
        held meanwhile is not taken again: the term for which it was held is over.
        """
        held = self.held
        while self._is_own():
            await self._clock.sleep(self._timing.retry_s)
            now_s = self._clock.monotonic_s()
            if now_s >= held.deadline_s:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(held.deadline_s - now_s, self._timing.retry_s)):
                    await self._try(renew=True)

    def _rest_s(self) -> float:
        """The rest until the next try. A write that is stored although it seems to fail renews the
        Lease and elects nobody: after such writes, this process waits until another may take the
        Lease."""
        stands_back_s = self._timing.lease_s if self._unknown > 1 else 0.0
        return stands_back_s + self._timing.retry_s

    def _is_own(self) -> bool:
        return self._seen is not None and self._seen.holder == self._identity

    async def _try(self, *, renew: bool = False) -> bool:
        """Take the Lease, or only ``renew`` it."""
        asked_s = self._clock.monotonic_s()
        try:
            lease = await self._get()
            self.problem = None
            now_s = self._clock.monotonic_s()
            self._seen = None if lease is None else observe(lease, self._seen, now_s)
            if renew and not self._is_own():
                return False
            if self._seen is not None and not may_take(self._seen, self._identity, now_s):
                self._unknown = 0
                return False
            stored = await self._put(lease)
        except (ConflictError, AlreadyExistsError) as error:
            structlog.get_logger().debug("lease not taken", error=str(error))
            return False
        except KubeError as error:
            if self.problem != str(error):
                structlog.get_logger().warning("lease not taken", error=str(error))
            self.problem = str(error)
            return False
        self._unknown = 0
        self._seen = observe(stored, self._seen, self._clock.monotonic_s())
        self.held.renewed(asked_s)
        return True

    async def _get(self) -> Object | None:
        try:
            return await self._kube.get(LEASES, self._name, self._namespace)
        except NotFoundError:
            return None

    async def _put(self, lease: Object | None) -> Object:
        spec = lease_spec(lease, self._identity, self._timing.lease_s, self._clock.now_unix_s())
        try:
            if lease is None:
                new = new_lease(self._name, self._namespace, spec)
                return await self._kube.create(LEASES, new, self._namespace)
            return await self._kube.update(LEASES, {**lease, "spec": spec})
        except KubeUnavailableError:
            self._unknown += 1
            raise

    async def _give_up(self) -> None:
        lease = await self._get()
        if lease is None or (lease.get("spec") or {}).get("holderIdentity") != self._identity:
            return
        spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        await self._kube.update(LEASES, {**lease, "spec": spec})
