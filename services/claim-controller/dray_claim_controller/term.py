"""One term of leadership: from an empty bus or a full one to facts, decisions and reports.

What starts a term is also what repairs one: whatever is lost (the facts, a log, the Lease),
the term ends and the next begins by reading what is there.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from dray.bus.ports import Bus, BusUnavailableError, NoRoomError, StreamSpec
from dray.bus.topology import FACTS_STREAM
from dray.domain.errors import TemporaryError
from dray.kube.ports import Kube
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.domains.epochs import Epochs
from dray_claim_controller.domains.followers import Followers
from dray_claim_controller.execute.commands import VoidCommands
from dray_claim_controller.execute.executor import Executor
from dray_claim_controller.execute.orders import Order
from dray_claim_controller.execute.progress import Environment, Progress
from dray_claim_controller.execute.steps import Hook
from dray_claim_controller.execute.stuck import StuckPods
from dray_claim_controller.execute.void_writes import VoidWrites
from dray_claim_controller.execute.withdraw import Withdrawer
from dray_claim_controller.execute.writes import ClaimWrites, Timeout
from dray_claim_controller.garbage.collector import Collector
from dray_claim_controller.observe.abilities import AbilityKeeper
from dray_claim_controller.observe.keeper import PoolKeeper
from dray_claim_controller.observe.publisher import Moves, Publisher
from dray_claim_controller.observe.watching import Watching
from dray_claim_controller.owners.keeper import OwnerKeeper
from dray_claim_controller.report.reporter import Reporter
from dray_claim_controller.settings import ControllerSettings
from dray_claim_controller.templates.keeper import TemplateKeeper

_ENDINGS = ("done", "failed", "stopped")
_MOST_REST_S = 0.05
"""Between two publications."""


class FactsLostError(TemporaryError):
    """The stream of facts is missing or another one: everything must be published again."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a term works with."""

    bus: Bus
    kube: Kube
    watching: Watching
    clock: Clock
    settings: ControllerSettings
    timeout_s: Timeout
    """Of writes that the Lease must cover."""
    progress: Callable[[Progress], None] = lambda _: None
    """Told of every step, for metrics."""
    hook: Hook | None = None


class Term:
    """Use once: ``run`` until cancelled or until something was lost."""

    def __init__(self, means: Means) -> None:
        self.ready = False
        """Whether everything was published and the logs are being followed."""
        self._means = means
        settings, watching, clock = means.settings, means.watching, means.clock
        bus, kube, instance = means.bus, means.kube, means.settings.instance
        writes = self._writes = ClaimWrites(kube, means.timeout_s)
        self.publisher = Publisher(
            bus,
            watching.picture,
            clock,
            instance=instance,
            moves=Moves(self._left, self._closing, settings.owner.quarantine, self._keeps_taints),
            tick_s=settings.publishing.tick,
            ask=watching.ask,
            cause_of=watching.cause_of,
        )
        self.abilities = AbilityKeeper(
            kube,
            self.publisher,
            clock,
            namespace=settings.namespace,
            look_every_s=settings.probing.look_every,
            ask_every_s=settings.probing.ask_every,
            allocating_scheduler=settings.owner.allocating_scheduler,
        )
        self.reporter = Reporter(
            kube,
            bus,
            watching,
            clock,
            writes,
            instance=instance,
            patience_s=settings.publishing.report_patience,
            too_large=lambda: self.publisher.too_large,
        )
        self.voids = VoidWrites(kube, watching, clock, writes, self.reporter.tell)
        self.epochs = Epochs(
            bus, kube, watching, self.publisher, clock, self.voids, instance=instance
        )
        withdrawer = Withdrawer(watching, writes, self.voids)
        self.executor = Executor(
            watching,
            clock,
            Environment(
                self.epochs.current,
                self._keeps_timestamp,
                self._progress,
                self.publisher.now_unix_s,
            ),
            writes,
            withdrawer,
            concurrency=settings.execution.concurrency,
            watch_timeout_s=settings.execution.watch_timeout,
            binding_timeout_s=settings.execution.binding_timeout,
            give_up_after_s=settings.execution.give_up_after,
            hook=means.hook,
        )
        self.followers = Followers(
            bus,
            watching,
            self.epochs,
            clock,
            decided=self._decided,
            waiting=self.reporter.waiting,
        )
        self.stuck = StuckPods(
            watching,
            clock,
            withdrawer,
            after_s=settings.execution.withdraw_after,
            backoff_s=settings.execution.scheduler_backoff,
            finish_after_s=settings.execution.finish_after,
            every_s=settings.execution.withdraw_every,
            finish=self.executor.resume,
            executing=self.executor.executing,
        )

    async def run(self) -> None:
        """Lead. Raises an ExceptionGroup of what was lost or failed."""
        created = await self._begin()
        try:
            async with asyncio.TaskGroup() as group:
                for name, loop in self._loops(created).items():
                    group.create_task(loop, name=name)  # type: ignore[arg-type]
                self.ready = True
        finally:
            self.ready = False
            await self.executor.close()

    async def _begin(self) -> str:
        """Streams, what was published, what exists; then ``created`` of the facts' stream."""
        watching = self._means.watching
        for spec in self._means.settings.streams.specs():
            await self._ensure(spec)
        created = await self._facts_created()
        await self.publisher.begin(created)
        if await self._facts_created() != created:
            # The term was begun on another stream than it names, where it fences nobody out.
            raise FactsLostError(f"the stream {FACTS_STREAM} was made anew; beginning again")
        self.epochs.facts_are(created)
        await watching.synced()
        # A watch that is behind must not make tombstones of what a predecessor knew.
        await watching.relist()
        self._remember_given_up()
        for domain in self.epochs.orphans():
            # It is closed beside the term; until then its nodes are no other pool's.
            self.epochs.begin_closing(domain)
        await self.abilities.begin(self._revision())
        await self.publisher.publish_everything()
        structlog.get_logger().info("everything published", facts=self.publisher.sequence)
        return created

    async def _ensure(self, spec: StreamSpec) -> None:
        try:
            await self._means.bus.ensure(spec)
        except NoRoomError as error:
            if spec.max_bytes is None:
                raise
            structlog.get_logger().warning(
                "NATS can't set storage aside for a stream, which is kept without a limit in "
                "bytes; raise max_file_store of nats-server, or lower DRAY_STREAMS__…",
                stream=spec.name,
                bytes=spec.max_bytes,
                error=str(error),
            )
            await self._means.bus.ensure(replace(spec, max_bytes=None))

    async def _facts_created(self) -> str:
        state = await self._means.bus.state(FACTS_STREAM)
        if state is None:
            raise FactsLostError(f"the stream {FACTS_STREAM} vanished while it was made")
        return state.created

    def _remember_given_up(self) -> None:
        """What earlier terms have given up, and no other: this process may have missed some."""
        watching, published = self._means.watching, self.publisher.given_up()
        for uid in [uid for uid in watching.picture.given_up if uid not in published]:
            watching.give_up(uid, None)
        for uid, record in published.items():
            if uid in watching.picture.claims:
                watching.give_up(uid, record)

    def _loops(self, created: str) -> dict[str, Awaitable[None]]:
        means, settings = self._means, self._means.settings
        kube, watching, clock = means.kube, means.watching, means.clock
        templates = TemplateKeeper(
            kube,
            watching,
            clock,
            dray_namespace=settings.namespace,
            tell=self.reporter.tell,
            waits=self.reporter.waits,
        )
        collector = Collector(
            kube,
            watching,
            clock,
            after_s=settings.templates.unused_after,
            every_s=settings.templates.collect_every,
        )
        pools = PoolKeeper(
            kube,
            watching,
            self.publisher,
            clock,
            orders=lambda: self.followers.orders,
            tell=self.reporter.tell_pool,
            every_s=settings.publishing.status_every,
            allocates=settings.owner.allocating_scheduler,
        )
        owners = OwnerKeeper(
            kube,
            watching,
            self.publisher,
            clock,
            tell=self.reporter.tell,
            writes=self._writes,
            every_s=settings.publishing.status_every,
            allocates=settings.owner.allocating_scheduler,
        )
        commands = VoidCommands(means.bus, watching, clock, self.voids)
        return {
            "publish": self._publish(),
            "tick": self._tick(),
            "guard": self._guard(created),
            "logs": self.followers.run(),
            "commands": commands.run(),
            "voids": self.voids.run(),
            "templates": templates.run(),
            "collect": collector.run(),
            "stuck": self.stuck.run(),
            "pools": pools.run(),
            "owners": owners.run(),
            "abilities": self.abilities.run(self._revision),
            "reports": self.reporter.run(look_every_s=settings.publishing.report_every),
        }

    async def _publish(self) -> None:
        watching, clock = self._means.watching, self._means.clock
        backoff = Backoff(0.05, 2.0)
        while True:
            began_s = clock.monotonic_s()
            try:
                await self.publisher.flush()
                backoff.reset()
            except BusUnavailableError:
                await clock.sleep(backoff.next_s())
                continue
            # Rests as long as it worked: under load an object's next changes come meanwhile, and
            # are told as one.
            if (rest_s := min(clock.monotonic_s() - began_s, _MOST_REST_S)) > 0:
                await clock.sleep(rest_s)
            if not watching.picture.dirty:
                await watching.changed()

    async def _tick(self) -> None:
        while True:
            try:
                await self.publisher.tick()
            except BusUnavailableError as error:
                structlog.get_logger().debug("no tick", error=str(error))
            if self._means.watching.picture.dirty:
                self._means.watching.wake()
            await self._means.clock.sleep(self._means.settings.publishing.tick)

    async def _guard(self, created: str) -> None:
        while True:
            await self._means.clock.sleep(self._means.settings.publishing.tick)
            try:
                state = await self._means.bus.state(FACTS_STREAM)
            except BusUnavailableError:
                # Merely away: what is under way goes on, and the next look decides.
                continue
            if state is None or state.created != created:
                raise FactsLostError(
                    f"the stream {FACTS_STREAM} is {'missing' if state is None else 'another one'}"
                    "; publishing everything anew"
                )
            with contextlib.suppress(BusUnavailableError):
                await self.followers.check()

    def _decided(self, order: Order) -> None:
        self.executor.submit(order)
        self.reporter.decided(order)

    def _progress(self, progress: Progress) -> None:
        self.reporter.progress(progress)
        if progress.step in _ENDINGS:
            self.followers.finished(progress.order)
        self._means.progress(progress)

    def _left(self) -> Mapping[tuple[str, str], int]:
        return self.followers.left()

    def _closing(self) -> Iterable[str]:
        return self.epochs.closing

    def _keeps_timestamp(self) -> bool:
        return self.abilities.known.allocation_timestamp

    def _keeps_taints(self) -> bool:
        return self.abilities.known.device_taints

    def _revision(self) -> int:
        return max(self._means.watching.picture.revision, 1)
