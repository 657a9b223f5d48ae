"""The composition root: settings, adapters, health pages, election, terms."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping

import structlog

from dray import telemetry
from dray.api.errors import DrayError
from dray.bus import jetstream
from dray.bus.payload import payload_problem
from dray.bus.ports import Bus, Request
from dray.bus.readings import ReadingServer
from dray.bus.store_limit import store_problem
from dray.kube import api
from dray.kube.ports import Kube
from dray.kube.request_metrics import RequestMetrics
from dray.messages.inputs import ControllerNoted
from dray.messages.rpc import DERIVE_SUBJECT, LOOKUP_SUBJECT
from dray.recording.journal import Journal
from dray.runtime import logs
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock, SystemClock
from dray.runtime.garbage import collect_seldom
from dray.runtime.health import HealthPages
from dray.runtime.lifetime import serve
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.snapshot import take_snapshot
from dray_claim_controller.execution.steps import Hook
from dray_claim_controller.identities.server import IdentityServer
from dray_claim_controller.identities.signing import AccountKey
from dray_claim_controller.informers import Informers
from dray_claim_controller.leader.election import Election, Timing
from dray_claim_controller.lookup import QUEUE, LookupServer
from dray_claim_controller.metrics import ControllerMetrics
from dray_claim_controller.settings import ControllerSettings
from dray_claim_controller.templates.server import TemplateServer
from dray_claim_controller.term import LeaderTerm, TermDependencies, run_terms

_SERVICE = "claim-controller"


class Controller:
    """One instance: always watches and answers lookups and readings; leads while elected."""

    def __init__(
        self,
        bus: Bus,
        kube: Kube,
        settings: ControllerSettings,
        *,
        clock: Clock | None = None,
        metrics: ControllerMetrics | None = None,
        hook: Hook | None = None,
    ) -> None:
        self.term: LeaderTerm | None = None
        """The current term, while leading."""
        self.bus = bus
        self._clock = clock or SystemClock()
        cache = ObjectCache()
        cache.is_published = False
        self.journal: Journal | None = None
        """Records inputs and decisions for ``dray record``."""
        if settings.record:
            self.journal = Journal(
                bus,
                ControllerNoted,
                self._clock,
                instance=settings.instance,
                known=lambda: take_snapshot(cache),
            )
        self.informers = Informers(kube, cache, self.journal)
        self._settings = settings
        self._lookup = LookupServer(kube, cache, limit_bytes=lambda: bus.max_payload_bytes)
        self._templates = TemplateServer(kube, self.informers)
        self.readings = ReadingServer(bus, self._clock)
        self.election = _election(kube, self._clock, settings)
        self._dependencies = TermDependencies(
            bus,
            kube,
            self.informers,
            self._clock,
            settings,
            self.election.held.timeout_s,
            progress=metrics.step if metrics is not None else lambda _: None,
            hook=hook,
        )
        if metrics is not None:
            self._add_gauges(metrics)
            metrics.show_pools(cache, self._members)

    def _members(self) -> Mapping[str, Iterable[str]]:
        """Nodes by pool, while leading."""
        pools = None if self.term is None else self.term.pools
        return {} if pools is None else pools.members

    async def watch(self) -> None:
        """Watch, until cancelled."""
        await self.informers.run()

    async def stand(self) -> None:
        """Take part in the election, and lead while elected."""
        backoff = Backoff(0.5, 10.0)
        while True:
            try:
                await self.election.run(lambda: run_terms(self._begin, self._clock))
            except DrayError as error:
                structlog.get_logger().error("election failed", error=str(error))
                await self._clock.sleep(backoff.next_s())

    async def look_up(self) -> None:
        """Answer the webhook's look-ups."""
        await self._answer(LOOKUP_SUBJECT, self._lookup.answer)

    async def derive(self) -> None:
        """Make the templates that the webhook asks for."""
        await self._answer(DERIVE_SUBJECT, self._templates.answer)

    async def _answer(self, subject: str, answer: Callable[[Request], Awaitable[bytes]]) -> None:
        backoff = Backoff(0.1, 5.0)
        while True:
            try:
                await self.bus.serve(subject, answer, queue=QUEUE)
            except DrayError as error:
                structlog.get_logger().warning(
                    "requests are not answered", subject=subject, error=str(error)
                )
            await self._clock.sleep(backoff.next_s())

    async def write_journal(self) -> None:
        """Publish the journal, until cancelled; without a journal, only wait."""
        if self.journal is None:
            await _nothing()
        else:
            await self.journal.run()

    def bus_problem(self) -> str | None:
        """Why the bus is unusable, or None."""
        return self.bus.problem

    def kube_problem(self) -> str | None:
        """Why the API server is unusable, or None."""
        if self.election.problem is not None:
            return self.election.problem
        return None if self.informers.cache.synced else "not everything was listed yet"

    def term_problem(self) -> str | None:
        """A leader that has not published everything yet is not ready."""
        if not self.election.leading:
            return None
        return None if self.term is not None and self.term.ready else "the term is beginning"

    def store_problem(self) -> str | None:
        """Why the NATS store needs attention, as far as a leader knows."""
        return store_problem(self.term.publisher.store_use) if self.term is not None else None

    def storing_problem(self) -> str | None:
        """Why NATS stores no facts, as far as a leader knows."""
        return self.term.store_status.problem if self.term is not None else None

    def _begin(self) -> LeaderTerm:
        self.term = LeaderTerm(self._dependencies)
        return self.term

    def _add_gauges(self, metrics: ControllerMetrics) -> None:
        def of_term(read: Callable[[LeaderTerm], float]) -> Callable[[], float]:
            return lambda: read(self.term) if self.term is not None else 0.0

        metrics.gauge("dray_leading", "1 while leading.", lambda: float(self.election.leading))
        metrics.gauge(
            "dray_executions", "Pods being executed.", of_term(lambda term: term.executor.busy)
        )
        metrics.gauge(
            "dray_executions_resting",
            "Pods being executed that wait for binding conditions of their devices.",
            of_term(lambda term: term.executor.resting),
        )
        metrics.gauge(
            "dray_double_allocations_prevented",
            "Allocations not written in this term because they would allocate a device twice.",
            of_term(lambda term: term.executor.double_allocations_prevented),
        )
        metrics.gauge(
            "dray_allocations_rolled_back",
            "Allocations rolled back in this term because kube-scheduler refused the pod.",
            of_term(lambda term: term.recovery.rolled_back),
        )
        metrics.gauge(
            "dray_unprepared_pods",
            "Bound pods whose node has not prepared their GPUs.",
            of_term(lambda term: term.preparation.waiting),
        )
        metrics.gauge(
            "dray_pods_prepared_again",
            "Times in this term that a kubelet was made to prepare a pod again.",
            of_term(lambda term: term.preparation.touched),
        )
        metrics.gauge(
            "dray_undecodable_records",
            "Undecodable records of decision logs skipped in this term.",
            of_term(lambda term: term.followers.undecodable),
        )
        metrics.gauge(
            "dray_report_backlog", "Reports not written yet.", of_term(lambda t: t.reporter.backlog)
        )
        metrics.gauge(
            "dray_unreadable_objects",
            "Objects that can't be read; devices that they hold stay allocated.",
            lambda: float(len(self.informers.cache.unreadable)),
        )
        metrics.gauge(
            "dray_facts_too_large",
            "Objects whose facts are too large for a message on the bus.",
            of_term(lambda term: len(term.publisher.too_large)),
        )
        metrics.gauge(
            "dray_store_bytes",
            "Bytes that NATS stores for dray; 0 while not leading.",
            of_term(lambda term: term.publisher.store_use.bytes),
        )
        metrics.gauge(
            "dray_store_limit_bytes",
            "Bytes that NATS may store for dray; 0: not known, or not leading.",
            of_term(lambda term: term.publisher.store_use.limit_bytes or 0),
        )
        metrics.gauge(
            "dray_facts_sequence",
            "Sequence of the newest stored fact.",
            of_term(lambda term: term.publisher.sequence),
        )


async def _nothing() -> None:
    await asyncio.Event().wait()


def _election(kube: Kube, clock: Clock, settings: ControllerSettings) -> Election:
    lease = settings.lease
    return Election(
        kube,
        clock,
        name=lease.name,
        namespace=settings.namespace,
        identity=settings.instance,
        timing=Timing(lease.duration, lease.renew_deadline, lease.retry),
    )


def _identities(bus: Bus, kube: Kube, settings: ControllerSettings) -> IdentityServer | None:
    """None without a signing key. Raises InvalidInputError for an invalid key."""
    own = settings.identities
    if not (seed := own.issuer_seed.get_secret_value()):
        structlog.get_logger().warning(
            "node-agents can't connect to NATS through this instance: "
            "DRAY_IDENTITIES__ISSUER_SEED is not set"
        )
        return None
    return IdentityServer(
        bus,
        kube,
        SystemClock(),
        key=AccountKey(seed),
        user=f"system:serviceaccount:{settings.namespace}:{own.service_account}",
        audience=own.audience,
        lifetime_s=own.lifetime,
    )


async def run(settings: ControllerSettings) -> None:
    """Run the process until a signal."""
    collect_seldom()
    logs.configure(
        _SERVICE, settings.instance, level=settings.log.level, format=settings.log.format
    )
    telemetry.configure(_SERVICE, settings.instance)
    health = HealthPages(settings.health.host, settings.health.port)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(telemetry.shutdown)
        bus = await jetstream.connect(
            settings.nats.url,
            name=f"dray-{_SERVICE}-{settings.instance}",
            user=settings.nats.user,
            password=settings.nats.password.get_secret_value(),
            ca_file=settings.nats.ca_file,
            replicas=settings.streams.replicas,
        )
        kube = await api.connect(
            settings.kube.kubeconfig,
            user_agent=f"dray-{_SERVICE}",
            metrics=RequestMetrics(health.registry),
        )
        controller = Controller(bus, kube, settings, metrics=ControllerMetrics(health.registry))
        journal = controller.journal
        identities = _identities(bus, kube, settings)
        health.check("bus", controller.bus_problem)
        health.check("kubernetes", controller.kube_problem)
        health.check("term", controller.term_problem)
        health.report("bus-store", controller.store_problem)
        health.report("bus-storing", controller.storing_problem)
        health.report("bus-max-payload", lambda: payload_problem(bus.max_payload_bytes))
        await serve(
            health=health,
            close=(*(() if journal is None else (journal.flush,)), bus.close, kube.close),
            watch=controller.watch,
            stand=controller.stand,
            look_up=controller.look_up,
            derive=controller.derive,
            readings=controller.readings.run,
            journal=controller.write_journal,
            identities=identities.run if identities is not None else _nothing,
        )


def main(settings: ControllerSettings) -> None:
    """Run until a signal."""
    asyncio.run(run(settings))
