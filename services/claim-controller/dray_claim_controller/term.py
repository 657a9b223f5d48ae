"""One term of leadership: makes facts, decisions and reports, from an empty or a full bus.

The start of a term also repairs: whatever is lost (the facts, a log, the Lease), the term ends, and
the next one begins by reading what is there.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

import structlog

from dray.api.errors import DrayError, PermanentError, TemporaryError
from dray.api.names import GPU_LABEL, GPU_PRESENT, VOLCANO_SCHEDULER
from dray.bus.ports import Bus, BusUnavailableError, NoRoomError, StreamSpec
from dray.bus.topology import FACTS_STREAM
from dray.kube.ports import NODES, Kube
from dray.messages.decisions import Waiting, log_stream
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.accounting_claims.reconciler import AccountingClaimReconciler
from dray_claim_controller.execution.decisions.executions import Execution
from dray_claim_controller.execution.executor import PodExecutor
from dray_claim_controller.execution.progress import ExecutorEnvironment, Progress
from dray_claim_controller.execution.recovery import PodRecovery
from dray_claim_controller.execution.rollback import Rollback, VoidWriter
from dray_claim_controller.execution.steps import Hook
from dray_claim_controller.execution.void_commands import VoidCommands
from dray_claim_controller.execution.writes import ExecutionWrites, Timeout
from dray_claim_controller.garbage.reconciler import GarbageReconciler
from dray_claim_controller.groups.reconciler import GroupReconciler
from dray_claim_controller.informers import Informers
from dray_claim_controller.inventories.server import InventoryServer
from dray_claim_controller.logs.decisions.retention import Retention
from dray_claim_controller.logs.epochs import Epochs
from dray_claim_controller.logs.followers import Followers
from dray_claim_controller.logs.trimmer import LogTrimmer
from dray_claim_controller.owners.reconciler import OwnerReconciler
from dray_claim_controller.pools.decisions.status import SILENT_S
from dray_claim_controller.pools.leases import ServingReplicas
from dray_claim_controller.pools.reconciler import PoolReconciler
from dray_claim_controller.preparation.reconciler import PreparationReconciler
from dray_claim_controller.publication.feature_gates import FeatureGateReconciler
from dray_claim_controller.publication.publisher import NodeMoves, Publisher, SupersededError
from dray_claim_controller.publication.store_status import StoreStatus
from dray_claim_controller.report.reporter import Reporter
from dray_claim_controller.settings import ControllerSettings
from dray_claim_controller.templates.reconciler import TemplateReconciler

_ENDINGS = ("done", "failed", "stopped")
_MOST_REST_S = 0.05
"""The longest rest between two publications."""


class FactsLostError(TemporaryError):
    """The stream of facts is missing or was replaced: everything must be published again."""


@dataclass(frozen=True, slots=True)
class TermDependencies:
    """The dependencies of a term."""

    bus: Bus
    kube: Kube
    informers: Informers
    clock: Clock
    settings: ControllerSettings
    timeout_s: Timeout
    """The timeout of writes that the Lease must cover."""
    progress: Callable[[Progress], None] = lambda _: None
    """Called with every step, for metrics."""
    hook: Hook | None = None


class LeaderTerm:
    """Use once: ``run`` until cancelled or until something was lost."""

    def __init__(self, dependencies: TermDependencies) -> None:
        self.ready = False
        """Whether everything was published and the logs are being followed."""
        self._unlimited: dict[str, None] = {}
        """Streams without a limit in bytes, for which this was logged."""
        self._dependencies = dependencies
        bus, kube, informers = dependencies.bus, dependencies.kube, dependencies.informers
        clock, settings = dependencies.clock, dependencies.settings
        writes = self._writes = ExecutionWrites(kube, dependencies.timeout_s)
        self.publisher = self._make_publisher()
        self.feature_gates = self._make_feature_gates()
        self.reporter = self._make_reporter()
        self.voids = VoidWriter(kube, informers, clock, writes, self.reporter.warn)
        self.epochs = Epochs(
            bus, kube, informers, self.publisher, clock, self.voids, instance=settings.instance
        )
        rollback = Rollback(informers, writes, self.voids)
        self.executor = self._make_executor(rollback)
        self.followers = Followers(
            bus,
            informers,
            self.epochs,
            clock,
            decided=self._decided,
            waiting=self._waits,
            nodes_of=self.publisher.nodes_of,
            published=self.publisher.domain,
        )
        self.groups = self._make_groups(rollback)
        self.trimmer = self._make_trimmer()
        self.store_status = StoreStatus(clock)
        self.pools: PoolReconciler | None = None
        """None before the term runs."""
        self.preparation = PreparationReconciler(
            kube,
            informers,
            clock,
            is_silent=self._is_silent,
            note=self.reporter.note,
            after_s=settings.execution.prepare_again_after,
        )
        self.inventories = self._make_inventories()
        self.recovery = self._make_recovery(rollback)

    def _make_publisher(self) -> Publisher:
        given = self._dependencies
        bus, informers, clock, settings = given.bus, given.informers, given.clock, given.settings
        return Publisher(
            bus,
            informers.cache,
            clock,
            instance=settings.instance,
            node_moves=NodeMoves(
                self._left_at, self._closing, settings.owner.quarantine, self._keeps_taints
            ),
            tick_s=settings.publishing.tick,
            evaluate=informers.evaluate,
            cause_of=informers.cause_of,
        )

    def _make_feature_gates(self) -> FeatureGateReconciler:
        given = self._dependencies
        kube, clock, settings = given.kube, given.clock, given.settings
        return FeatureGateReconciler(
            kube,
            self.publisher,
            clock,
            namespace=settings.namespace,
            look_every_s=settings.probing.look_every,
            ask_every_s=settings.probing.ask_every,
            allocating_scheduler=settings.owner.allocating_scheduler,
        )

    def _make_reporter(self) -> Reporter:
        given = self._dependencies
        settings = given.settings
        return Reporter(
            given.kube,
            given.bus,
            given.informers,
            given.clock,
            self._writes,
            instance=settings.instance,
            patience_s=settings.publishing.report_patience,
            too_large=lambda: self.publisher.too_large,
        )

    def _make_executor(self, rollback: Rollback) -> PodExecutor:
        given = self._dependencies
        informers, clock, settings = given.informers, given.clock, given.settings
        return PodExecutor(
            informers,
            clock,
            ExecutorEnvironment(
                self.epochs.current,
                self._keeps_timestamp,
                self._progress,
                self.publisher.now_unix_s,
            ),
            self._writes,
            rollback,
            concurrency=settings.execution.concurrency,
            watch_timeout_s=settings.execution.watch_timeout,
            binding_timeout_s=settings.execution.binding_timeout,
            give_up_after_s=settings.execution.give_up_after,
            hook=self._dependencies.hook,
        )

    def _make_groups(self, rollback: Rollback) -> GroupReconciler:
        given = self._dependencies
        kube, informers, clock, settings = given.kube, given.informers, given.clock, given.settings
        return GroupReconciler(
            kube,
            informers,
            clock,
            writes=self._writes,
            rollback=rollback,
            executions=lambda: self.followers.executions,
            executing=self.executor.executing,
            every_s=settings.publishing.status_every,
            timeout_s=settings.groups.timeout,
            grace_s=settings.groups.grace,
            acts_for_volcano=VOLCANO_SCHEDULER in settings.groups.scheduler_names,
        )

    def _make_trimmer(self) -> LogTrimmer:
        given = self._dependencies
        bus, informers, clock, settings = given.bus, given.informers, given.clock, given.settings
        return LogTrimmer(
            bus,
            informers,
            self.publisher,
            self.epochs,
            clock,
            executions=lambda: self.followers.executions,
            keep=Retention(settings.logs.keep_for, settings.logs.keep_bytes),
            every_s=settings.logs.trim_every,
            store_bytes=settings.streams.store,
        )

    def _make_inventories(self) -> InventoryServer:
        given = self._dependencies
        bus, informers, clock, settings = given.bus, given.informers, given.clock, given.settings
        return InventoryServer(
            bus,
            informers.cache,
            self.publisher,
            clock,
            instance=settings.instance,
            label=self._label_node,
            on_registered=self.preparation.agent_registered,
            on_prepared=self.preparation.claims_prepared,
        )

    def _make_recovery(self, rollback: Rollback) -> PodRecovery:
        given = self._dependencies
        informers, clock, settings = given.informers, given.clock, given.settings
        return PodRecovery(
            informers,
            clock,
            rollback,
            after_s=settings.execution.withdraw_after,
            backoff_s=settings.execution.scheduler_backoff,
            finish_after_s=settings.execution.finish_after,
            every_s=settings.execution.withdraw_every,
            finish=self.executor.resume,
            executing=self.executor.executing,
        )

    async def run(self) -> None:
        """Lead. Raises an ExceptionGroup of what was lost or failed."""
        cache = self._dependencies.informers.cache
        cache.is_published = True
        try:
            created = await self._begin()
            async with asyncio.TaskGroup() as group:
                for name, loop in self._loops(created).items():
                    group.create_task(loop, name=name)  # type: ignore[arg-type]
                self.ready = True
        finally:
            self.ready = False
            cache.is_published = False
            cache.take_dirty()
            await self.executor.close()

    async def _begin(self) -> str:
        """Make the streams, read what was published, and wait for what exists. Returns ``created``
        of the facts' stream."""
        informers = self._dependencies.informers
        for spec in self._dependencies.settings.streams.specs():
            await self._ensure(spec)
        created = await self._facts_created()
        await self.publisher.begin(created)
        if await self._facts_created() != created:
            # The term was begun on another stream than the one that it names, and fences nobody out
            # there.
            raise FactsLostError(f"the stream {FACTS_STREAM} was created again; beginning again")
        self.epochs.facts_are(created)
        await informers.synced()
        # A watch that is behind must not make tombstones of what a predecessor knew.
        if behind := await self.publisher.kinds_behind():
            await informers.relist(behind)
            await self.publisher.note_restored()
        self._remember_given_up()
        for domain in self.epochs.orphans():
            # It is closed during the term; until then its nodes join no other pool.
            self.epochs.begin_closing(domain)
        await self.feature_gates.begin(self._revision())
        await self.publisher.publish_everything()
        structlog.get_logger().info("everything published", facts=self.publisher.sequence)
        return created

    async def _ensure(self, spec: StreamSpec) -> None:
        try:
            await self._dependencies.bus.ensure(spec)
        except NoRoomError as error:
            if spec.max_bytes is None:
                raise
            log = structlog.get_logger()
            (log.debug if spec.name in self._unlimited else log.warning)(
                "NATS can't reserve storage for a stream, so the stream has no limit in "
                "bytes; raise max_file_store of nats-server, or lower DRAY_STREAMS__…",
                stream=spec.name,
                bytes=spec.max_bytes,
                error=str(error),
            )
            self._unlimited[spec.name] = None
            await self._dependencies.bus.ensure(replace(spec, max_bytes=None))

    async def _facts_created(self) -> str:
        state = await self._dependencies.bus.state(FACTS_STREAM)
        if state is None:
            raise FactsLostError(f"the stream {FACTS_STREAM} vanished while it was made")
        return state.created

    def _remember_given_up(self) -> None:
        """Take over what earlier terms have given up, and nothing else: this process may have
        missed some."""
        informers, published = self._dependencies.informers, self.publisher.given_up()
        for uid in [uid for uid in informers.cache.given_up if uid not in published]:
            informers.give_up(uid, None)
        for uid, record in published.items():
            if uid in informers.cache.claims:
                informers.give_up(uid, record)

    async def _label_node(self, name: str) -> None:
        patch = {"metadata": {"labels": {GPU_LABEL: GPU_PRESENT}}}
        answer = await self._dependencies.kube.patch(NODES, name, patch)
        self._dependencies.informers.apply_response(NODES, answer)

    def _loops(self, created: str) -> dict[str, Awaitable[None]]:
        given = self._dependencies
        pools = self.pools = self._make_pools()
        accounting = AccountingClaimReconciler(
            given.kube,
            given.informers,
            given.clock,
            writes=self._writes,
            warn=self.reporter.warn,
        )
        commands = VoidCommands(given.bus, given.informers, given.clock, self.voids)
        return {
            "publish": self._publish(),
            "tick": self._tick(),
            "guard": self._guard(created),
            "streams": self._keep_streams(),
            "inventories": self.inventories.run(),
            "logs": self.followers.run(),
            "trim": self.trimmer.run(),
            "commands": commands.run(),
            "voids": self.voids.run(),
            "templates": self._make_templates().run(),
            "accounting": accounting.run(),
            "collect": self._make_garbage().run(),
            "stuck": self.recovery.run(),
            "prepare": self.preparation.run(),
            "pools": pools.run(),
            "owners": self._make_owners().run(),
            "groups": self.groups.run(),
            "abilities": self.feature_gates.run(self._revision),
            "reports": self.reporter.run(look_every_s=given.settings.publishing.report_every),
        }

    def _make_templates(self) -> TemplateReconciler:
        given = self._dependencies
        kube, informers, clock, settings = given.kube, given.informers, given.clock, given.settings
        return TemplateReconciler(
            kube,
            informers,
            clock,
            dray_namespace=settings.namespace,
            warn=self.reporter.warn,
            report_wait=self.reporter.report_wait,
        )

    def _make_garbage(self) -> GarbageReconciler:
        given = self._dependencies
        kube, informers, clock, settings = given.kube, given.informers, given.clock, given.settings
        return GarbageReconciler(
            kube,
            informers,
            clock,
            after_s=settings.templates.unused_after,
            every_s=settings.templates.collect_every,
        )

    def _make_pools(self) -> PoolReconciler:
        given = self._dependencies
        settings = given.settings
        return PoolReconciler(
            given.kube,
            given.informers,
            self.publisher,
            given.clock,
            executions=lambda: self.followers.executions,
            warn=self.reporter.warn_pool,
            every_s=settings.publishing.status_every,
            allocates=settings.owner.allocating_scheduler,
            serving=ServingReplicas(given.bus, given.clock),
            is_silent=self._is_silent,
        )

    def _make_owners(self) -> OwnerReconciler:
        given = self._dependencies
        kube, informers, clock, settings = given.kube, given.informers, given.clock, given.settings
        return OwnerReconciler(
            kube,
            informers,
            self.publisher,
            clock,
            warn=self.reporter.warn,
            writes=self._writes,
            every_s=settings.publishing.status_every,
            allocates=settings.owner.allocating_scheduler,
        )

    async def _publish(self) -> None:
        informers, clock = self._dependencies.informers, self._dependencies.clock
        backoff = Backoff(0.05, 2.0)
        while True:
            began_s = clock.monotonic_s()
            try:
                await self.publisher.flush()
                backoff.reset()
            except BusUnavailableError:
                await clock.sleep(backoff.next_s())
                continue
            # Rests as long as it worked: under load an object changes again meanwhile, and one fact
            # covers these changes.
            if (rest_s := min(clock.monotonic_s() - began_s, _MOST_REST_S)) > 0:
                await clock.sleep(rest_s)
            if not informers.cache.dirty:
                await informers.changed()

    async def _tick(self) -> None:
        while True:
            try:
                await self.publisher.tick()
            except BusUnavailableError as error:
                self.store_status.failed(error)
            else:
                self.store_status.stored()
            if self._dependencies.informers.cache.dirty:
                self._dependencies.informers.wake()
            await self._dependencies.clock.sleep(self._dependencies.settings.publishing.tick)

    async def _guard(self, created: str) -> None:
        while True:
            await self._dependencies.clock.sleep(self._dependencies.settings.publishing.tick)
            try:
                state = await self._dependencies.bus.state(FACTS_STREAM)
            except BusUnavailableError:
                # The bus is only away: what is under way goes on, and the next look decides.
                continue
            if state is None or state.created != created:
                raise FactsLostError(
                    f"the stream {FACTS_STREAM} is {'missing' if state is None else 'another one'}"
                    "; publishing everything again"
                )
            with contextlib.suppress(BusUnavailableError):
                await self.followers.check()

    async def _keep_streams(self) -> None:
        """Make streams again that were deleted, and raise the replicas of those that were made
        while a server was away, or before there were several. Facts and logs are never made again
        here: what was lost with them has to be noticed."""
        dependencies, specs = self._dependencies, self._dependencies.settings.streams.specs()
        while True:
            await dependencies.clock.sleep(dependencies.settings.streams.look_every)
            logs = [log_stream(name, epoch) for name, epoch in self.publisher.domains().items()]
            try:
                for spec in specs:
                    if spec.name != FACTS_STREAM:
                        await self._ensure(spec)
                for name in (*(spec.name for spec in specs), *logs):
                    await dependencies.bus.raise_replicas(name)
            except (BusUnavailableError, PermanentError) as error:
                structlog.get_logger().warning("streams were not checked", why=str(error))

    def _decided(self, execution: Execution) -> None:
        self.executor.submit(execution)
        self.reporter.decided(execution)

    def _waits(self, waiting: Waiting) -> None:
        self.reporter.waiting(waiting)
        self.groups.waiting(waiting)

    def _progress(self, progress: Progress) -> None:
        self.reporter.progress(progress)
        if progress.step in _ENDINGS:
            self.followers.finished(progress.execution)
        self._dependencies.progress(progress)

    def _is_silent(self, node: str) -> bool:
        return self.inventories.is_silent(node, after_s=SILENT_S)

    def _left_at(self, domain: str, node: str) -> int:
        return self.followers.left(domain, node)

    def _closing(self) -> Iterable[str]:
        return self.epochs.closing

    def _keeps_timestamp(self) -> bool:
        return self.feature_gates.known.allocation_timestamp

    def _keeps_taints(self) -> bool:
        return self.feature_gates.known.device_taints

    def _revision(self) -> int:
        return max(self._dependencies.informers.cache.revision, 1)


async def run_terms(begin: Callable[[], LeaderTerm], clock: Clock) -> None:
    """Lead until cancelled, or until the facts say that another leads. Then the Lease is looked at
    before the next term, which would end the other's term."""
    backoff = Backoff(0.1, 5.0)
    while True:
        term = begin()
        started_s = clock.monotonic_s()
        superseded = False
        try:
            # In a task of its own: a failed task group leaves its task marked as cancelled.
            await asyncio.create_task(term.run(), name="term")
        except* SupersededError as group:
            superseded = True
            structlog.get_logger().warning("the term ended", error=str(group.exceptions[0]))
        except* DrayError as group:
            for error in group.exceptions:
                structlog.get_logger().warning("the term ended", error=str(error))
        # A task group whose members fail while it is cancelled raises their errors alone.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        if superseded:
            return
        if clock.monotonic_s() - started_s > 30:
            backoff.reset()
        await clock.sleep(backoff.next_s())
