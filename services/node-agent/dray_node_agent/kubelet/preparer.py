"""Prepares and unprepares claims, in an order of writes that survives a crash at any point.

PrepareClaim: verify against the API → checkpoint ``PrepareStarted`` → CDI file → checkpoint
``PrepareCompleted``. Unprepare: remove the CDI file → remove the entry. One task
at a time works on a claim, and completes even if the kubelet closes the connection.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec
import structlog

from dray.api.claims import Claim
from dray.api.errors import DrayError, PermanentError, TemporaryError
from dray.api.names import TRACEPARENT
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, Kube, KubeError, NotFoundError, NotServedError, Object
from dray.runtime.clock import Clock
from dray.telemetry import spans
from dray_node_agent.decisions.claim_devices import NotPreparedError, device_uses, prepared_claim
from dray_node_agent.decisions.inventory import NodeInventory
from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.decisions.rules import IsClaimLive, PrepareClaim, Refusal
from dray_node_agent.kubelet.prepared_claims import PreparedClaims
from dray_node_agent.rule_recorder import AgentRuleRecorder

T = TypeVar("T")
REMEMBERED_UNPREPARES = 1024


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """The kubelet's reference to a claim."""

    namespace: str
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class NewlyPrepared:
    """A claim whose preparation was just completed."""

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
        inventory: Callable[[], NodeInventory | None],
        prepared_claims: PreparedClaims,
        clock: Clock,
        on_prepared: Callable[[NewlyPrepared], None] = lambda _: None,
        recorder: AgentRuleRecorder | None = None,
    ) -> None:
        self._kube = kube
        self._node = node
        self._inventory = inventory
        self._prepared_claims = prepared_claims
        self._clock = clock
        self._on_prepared = on_prepared
        self._recorder = recorder or AgentRuleRecorder()
        self._unprepared: OrderedDict[str, None] = OrderedDict()
        self._of_claim: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._log = structlog.get_logger().bind(node=node)
        self.failures = 0
        """Claims that could not be prepared since the start."""

    @property
    def claims(self) -> Mapping[str, PreparedClaim]:
        """The prepared claims by uid."""
        return self._prepared_claims.claims

    async def prepare(self, refs: Sequence[ClaimRef]) -> dict[str, PreparedClaim | str]:
        """Every requested claim prepared, or the error's text. Idempotent."""
        answers = await self._run_to_completion([self._prepare_or_error(ref) for ref in refs])
        return dict(zip((ref.uid for ref in refs), answers, strict=True))

    async def unprepare(self, refs: Sequence[ClaimRef]) -> dict[str, str]:
        """The error of every requested claim; empty for success and for unknown claims."""
        answers = await self._run_to_completion([self._unprepare_or_error(ref) for ref in refs])
        return dict(zip((ref.uid for ref in refs), answers, strict=True))

    async def restore(self) -> None:
        """Restore the claims of an earlier process; undo incomplete preparations.

        An unreadable checkpoint is kept and rebuilt from the API server's claims.

        Raises:
            KubeError: the checkpoint must be rebuilt, and the API does not list claims; call again.
        """
        claims = await self._prepared_claims.load()
        if claims is None:
            claims = await self._rebuilt()
        await self._prepared_claims.adopt(claims)
        self._log.info("claims restored", prepared=len(self.claims), found=len(claims))

    async def sweep(self) -> tuple[str, ...]:
        """Remove claims that are deleted or deallocated; returns their uids. One that can't be read
        stays, and does not delay others."""
        gone = []
        for uid in sorted(self.claims):
            try:
                if await self._swept(uid):
                    gone.append(uid)
            except KubeError as error:
                self._log.info("claim not swept", uid=uid, error=str(error))
        if gone:
            self._log.warning("claims ended without Unprepare", uids=gone)
        return tuple(gone)

    async def drain(self) -> None:
        """Wait for all running work on claims."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _run_to_completion(self, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run concurrently, also on if the caller is cancelled: a thread may be writing."""
        tasks = [asyncio.create_task(one) for one in work]
        for task in tasks:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(asyncio.gather(*tasks))

    def _lock_of(self, uid: str) -> asyncio.Lock:
        return self._of_claim.setdefault(uid, asyncio.Lock())

    async def _prepare_or_error(self, ref: ClaimRef) -> PreparedClaim | str:
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
        if (known := self._prepared_claims.completed(ref.uid)) is not None:
            await self._prepared_claims.write_file(known)
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
            done = await self._prepared_claims.complete(entry)
        took_us = int((self._clock.monotonic_s() - started_s) * 1e6)
        self._log.info("claim prepared", claim=f"{ref.namespace}/{ref.name}", uid=ref.uid)
        self._on_prepared(NewlyPrepared(done, self._clock.now_unix_s(), took_us))
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

    def _known_inventory(self) -> NodeInventory:
        inventory = self._inventory()
        if inventory is None:
            raise NotPreparedError(f"the GPUs of node {self._node} have not been read yet")
        return inventory

    async def _reserve(self, obj: Object, ref: ClaimRef, traceparent: str) -> PreparedClaim:
        """Checkpoint the claim as started, if its devices have capacity left."""
        async with self._prepared_claims.changing:
            decided = self._decide(obj, ref, traceparent)
            if isinstance(decided, Refusal) and decided.full:
                # Claims may have ended without Unprepare; only existing ones count.
                await self._remove_ended_claims(claim_from(obj), ref.uid)
                decided = self._decide(obj, ref, traceparent)
            if isinstance(decided, Refusal):
                raise NotPreparedError(decided.why)
            await self._prepared_claims.begin(decided)
        return decided

    def _decide(self, obj: Object, ref: ClaimRef, traceparent: str) -> PreparedClaim | Refusal:
        inventory = self._known_inventory()
        return self._recorder.evaluate(
            PrepareClaim(
                claim=obj,
                uid=ref.uid,
                node=self._node,
                snapshot=inventory.snapshot,
                state=inventory.state,
                held=tuple(self._prepared_claims.others(ref.uid)),
                was_unprepared=ref.uid in self._unprepared,
                traceparent=traceparent,
            )
        )

    async def _remove_ended_claims(self, claim: Claim, uid: str) -> None:
        gpus = {one.id.device for one in claim.allocation.devices} if claim.allocation else ()
        for holder in self._prepared_claims.others(uid):
            if not any(device.device in gpus for device in holder.devices):
                continue
            if self._lock_of(holder.uid).locked():
                continue
            try:
                if not await self._is_live(holder):
                    await self._prepared_claims.remove(holder.uid)
            except KubeError as error:
                # It counts as existing: its capacity stays in use.
                self._log.info(
                    "claim on the same device not read", uid=holder.uid, error=str(error)
                )

    async def _unprepare_or_error(self, ref: ClaimRef) -> str:
        try:
            async with self._lock_of(ref.uid), self._prepared_claims.changing:
                await self._prepared_claims.remove(ref.uid)
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
            async with self._prepared_claims.changing:
                await self._prepared_claims.remove(uid)
            return True

    async def _is_live(self, entry: PreparedClaim) -> bool:
        """Whether the API server has this claim, allocated."""
        obj: Object | None
        try:
            obj = await self._kube.get(CLAIMS, entry.name, entry.namespace)
        except NotServedError:
            raise  # Whether the claim exists is unknown.
        except NotFoundError:
            obj = None
        return self._recorder.evaluate(IsClaimLive(uid=entry.uid, claim=obj))

    async def _rebuilt(self) -> dict[str, PreparedClaim]:
        """The claims allocated here according to the API server, as if all had been prepared."""
        listed = await self._kube.list(CLAIMS)
        rebuilt: dict[str, PreparedClaim] = {}
        for obj in listed.objects:
            claim = claim_from(obj)
            if not claim.reserved_for:
                continue
            try:
                inventory = self._known_inventory()
                wanted = device_uses(claim, claim.uid, self._node, inventory.published_gpus)
                entry = prepared_claim(claim, wanted, inventory.qos, _traceparent(obj))
            except PermanentError:
                continue  # not on this node, or its devices are gone
            if claim.spec.unreadable:
                # Its file stays; its configuration is unknown.
                self._log.error("claim not restored", uid=claim.uid, why=claim.spec.unreadable)
                continue
            rebuilt[claim.uid] = msgspec.structs.replace(entry, phase="PrepareCompleted")
        await self._prepared_claims.remove_files_except(
            {obj["metadata"]["uid"] for obj in listed.objects}
        )
        return rebuilt


def _traceparent(obj: Object) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(TRACEPARENT, ""))
