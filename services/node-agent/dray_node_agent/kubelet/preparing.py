"""Preparing and unpreparing claims: the order of writes that survives a crash anywhere.

Prepare: verify against the API → checkpoint ``PrepareStarted`` → CDI file → checkpoint
``PrepareCompleted``. Unprepare: remove the CDI file → remove the entry. Each claim is worked
on by one task at a time, to its end even if the kubelet hangs up meanwhile.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec
import structlog

from dray.domain.claims import Claim
from dray.domain.errors import DrayError, PermanentError, TemporaryError
from dray.domain.names import TRACEPARENT
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, Kube, KubeError, NotFoundError, NotServedError, Object
from dray.runtime.clock import Clock
from dray.telemetry import spans
from dray_node_agent.deciding import IsLive, Prepare, Refusal, Seam
from dray_node_agent.inventory import Stock
from dray_node_agent.kubelet.devices import NotPreparedError, planned, uses
from dray_node_agent.kubelet.ledger import Ledger
from dray_node_agent.kubelet.prepared import PreparedClaim

T = TypeVar("T")
REMEMBERED_UNPREPARES = 1024


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as the kubelet names it."""

    namespace: str
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A claim that became ready just now."""

    claim: PreparedClaim
    now_unix_s: float
    took_us: int


class Preparer:
    """The claims prepared on ``node``. Call ``restore`` once before anything else."""

    def __init__(
        self,
        *,
        kube: Kube,
        node: str,
        stock: Callable[[], Stock | None],
        ledger: Ledger,
        clock: Clock,
        on_prepared: Callable[[Prepared], None] = lambda _: None,
        seam: Seam | None = None,
    ) -> None:
        self._kube = kube
        self._node = node
        self._stock = stock
        self._ledger = ledger
        self._clock = clock
        self._on_prepared = on_prepared
        self._seam = seam or Seam()
        self._unprepared: OrderedDict[str, None] = OrderedDict()
        self._of_claim: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._log = structlog.get_logger().bind(node=node)
        self.failures = 0
        """Claims that could not be prepared since the start."""

    @property
    def claims(self) -> Mapping[str, PreparedClaim]:
        """What is prepared, by claim uid."""
        return self._ledger.claims

    async def prepare(self, refs: Sequence[ClaimRef]) -> dict[str, PreparedClaim | str]:
        """Every claim asked for, prepared, or in words why not. Repeating it changes nothing."""
        answers = await self._to_the_end([self._prepare_or_say(ref) for ref in refs])
        return dict(zip((ref.uid for ref in refs), answers, strict=True))

    async def unprepare(self, refs: Sequence[ClaimRef]) -> dict[str, str]:
        """Every claim asked for with an error, or an empty text. Unknown ones are done already."""
        answers = await self._to_the_end([self._unprepare_or_say(ref) for ref in refs])
        return dict(zip((ref.uid for ref in refs), answers, strict=True))

    async def restore(self) -> None:
        """Take up what an earlier process left: checkpoint, CDI files, half-done claims.

        A checkpoint that can't be read is kept aside and replaced by what the API knows.

        Raises:
            KubeError: the checkpoint must be rebuilt, and the API does not list claims; call again.
        """
        claims = await self._ledger.load()
        if claims is None:
            claims = await self._rebuilt()
        await self._ledger.adopt(claims)
        self._log.info("claims restored", prepared=len(self.claims), found=len(claims))

    async def sweep(self) -> tuple[str, ...]:
        """Forget claims that are gone from the API or hold nothing any more; their uids. One that
        can't be read stays, and holds up no other."""
        gone = []
        for uid in sorted(self.claims):
            try:
                if await self._swept(uid):
                    gone.append(uid)
            except KubeError as error:
                self._log.info("claim not swept", uid=uid, error=str(error))
        if gone:
            self._log.warning("claims were gone without Unprepare", uids=gone)
        return tuple(gone)

    async def drain(self) -> None:
        """Wait for the claims being worked on."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _to_the_end(self, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run concurrently, and go on when the caller is cancelled: a thread may be writing."""
        tasks = [asyncio.create_task(one) for one in work]
        for task in tasks:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(asyncio.gather(*tasks))

    def _lock_of(self, uid: str) -> asyncio.Lock:
        return self._of_claim.setdefault(uid, asyncio.Lock())

    async def _prepare_or_say(self, ref: ClaimRef) -> PreparedClaim | str:
        try:
            async with self._lock_of(ref.uid):
                return await self._prepare(ref)
        except (DrayError, OSError) as error:
            self.failures += 1
            self._log.warning(
                "claim not prepared",
                claim=f"{ref.namespace}/{ref.name}",
                uid=ref.uid,
                error=str(error),
                temporary=isinstance(error, TemporaryError),
            )
            return str(error)

    async def _prepare(self, ref: ClaimRef) -> PreparedClaim:
        started_s = self._clock.monotonic_s()
        if (known := self._ledger.completed(ref.uid)) is not None:
            await self._ledger.write_file(known)
            return known
        obj, claim = await self._fetch(ref)
        traceparent = _traceparent(obj)
        attributes: dict[str, str | int] = {
            "k8s.namespace.name": ref.namespace,
            "k8s.pod.name": claim.pod_name,
            "k8s.node.name": self._node,
            "dray.claim": ref.name,
            "dray.devices": len(claim.allocation.devices) if claim.allocation else 0,
        }
        with spans.start("prepare", traceparent, attributes, kind="server") as span:
            entry = await self._reserve(obj, ref, span.traceparent)
            done = await self._ledger.complete(entry)
        took_us = int((self._clock.monotonic_s() - started_s) * 1e6)
        self._log.info("claim prepared", claim=f"{ref.namespace}/{ref.name}", uid=ref.uid)
        self._on_prepared(Prepared(done, self._clock.now_unix_s(), took_us))
        return done

    async def _fetch(self, ref: ClaimRef) -> tuple[Object, Claim]:
        try:
            obj = await self._kube.get(CLAIMS, ref.name, ref.namespace)
        except NotServedError:
            raise  # Whether the claim exists is unknown.
        except NotFoundError as error:
            raise NotPreparedError(
                f"claim {ref.namespace}/{ref.name} does not exist, or no longer"
            ) from error
        return obj, claim_from(obj)

    def _known_stock(self) -> Stock:
        stock = self._stock()
        if stock is None:
            raise NotPreparedError(f"the cards of node {self._node} have not been read yet")
        return stock

    async def _reserve(self, obj: Object, ref: ClaimRef, traceparent: str) -> PreparedClaim:
        """Checkpoint the claim as started, if its cards have room beside the live ones."""
        async with self._ledger.changing:
            decided = self._decide(obj, ref, traceparent)
            if isinstance(decided, Refusal) and decided.full:
                # Holders may have died without Unprepare; only live ones count.
                await self._drop_dead_holders(claim_from(obj), ref.uid)
                decided = self._decide(obj, ref, traceparent)
            if isinstance(decided, Refusal):
                raise NotPreparedError(decided.why)
            await self._ledger.begin(decided)
        return decided

    def _decide(self, obj: Object, ref: ClaimRef, traceparent: str) -> PreparedClaim | Refusal:
        stock = self._known_stock()
        return self._seam.ask(
            Prepare(
                claim=obj,
                uid=ref.uid,
                node=self._node,
                reading=stock.reading,
                state=stock.state,
                held=tuple(self._ledger.others(ref.uid)),
                was_unprepared=ref.uid in self._unprepared,
                traceparent=traceparent,
            )
        )

    async def _drop_dead_holders(self, claim: Claim, uid: str) -> None:
        cards = {one.id.device for one in claim.allocation.devices} if claim.allocation else ()
        for holder in self._ledger.others(uid):
            if not any(device.device in cards for device in holder.devices):
                continue
            if self._lock_of(holder.uid).locked():
                continue
            try:
                if not await self._is_live(holder):
                    await self._ledger.remove(holder.uid)
            except KubeError as error:
                # It counts as live: its cards are not given away.
                self._log.info("holder not read", uid=holder.uid, error=str(error))

    async def _unprepare_or_say(self, ref: ClaimRef) -> str:
        try:
            async with self._lock_of(ref.uid), self._ledger.changing:
                await self._ledger.remove(ref.uid)
        except OSError as error:
            self._log.error("claim not unprepared", uid=ref.uid, error=str(error))
            return f"claim {ref.namespace}/{ref.name}: {error}"
        self._unprepared[ref.uid] = None
        while len(self._unprepared) > REMEMBERED_UNPREPARES:
            self._unprepared.popitem(last=False)
        return ""

    async def _swept(self, uid: str) -> bool:
        async with self._lock_of(uid):
            claim = self.claims.get(uid)
            if claim is None or await self._is_live(claim):
                return False
            async with self._ledger.changing:
                await self._ledger.remove(uid)
            return True

    async def _is_live(self, entry: PreparedClaim) -> bool:
        """Whether the API still has this very claim, allocated."""
        obj: Object | None
        try:
            obj = await self._kube.get(CLAIMS, entry.name, entry.namespace)
        except NotServedError:
            raise  # Whether the claim exists is unknown.
        except NotFoundError:
            obj = None
        return self._seam.ask(IsLive(uid=entry.uid, claim=obj))

    async def _rebuilt(self) -> dict[str, PreparedClaim]:
        """What the API says this node holds, as if all of it had been prepared."""
        listed = await self._kube.list(CLAIMS)
        rebuilt: dict[str, PreparedClaim] = {}
        for obj in listed.objects:
            claim = claim_from(obj)
            if not claim.reserved_for:
                continue
            try:
                stock = self._known_stock()
                wanted = uses(claim, claim.uid, self._node, stock.offers)
                entry = planned(claim, wanted, stock.qos, _traceparent(obj))
            except PermanentError:
                continue  # not of this node, or nothing of it is left here
            if claim.spec.unreadable:
                # Its file stays; how it was configured is unknown.
                self._log.error("claim not restored", uid=claim.uid, why=claim.spec.unreadable)
                continue
            rebuilt[claim.uid] = msgspec.structs.replace(entry, phase="PrepareCompleted")
        await self._ledger.remove_files_except({obj["metadata"]["uid"] for obj in listed.objects})
        return rebuilt


def _traceparent(obj: Object) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(TRACEPARENT, ""))
