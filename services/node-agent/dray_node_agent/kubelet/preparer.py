"""Prepares and unprepares claims, in an order of writes that survives a crash at any point.

Prepare: verify against the API → entry in the checkpoint, with all that the CDI file says → CDI
file → answer. Unprepare: remove the CDI file → remove the entry. An entry whose file is missing is
repaired by the next start and by the kubelet's retry. One task at a time works on a claim, and
completes even if the kubelet closes the connection.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import structlog

from dray.api.claims import Claim
from dray.api.errors import DrayError, PermanentError, TemporaryError
from dray.api.names import TRACEPARENT
from dray.kube.convert import claim_from
from dray.kube.convert_pods import claim_names
from dray.kube.ports import (
    CLAIMS,
    PODS,
    Kube,
    KubeError,
    NotFoundError,
    NotServedError,
    Object,
    Resource,
)
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray.telemetry import spans
from dray_node_agent.decisions.cdi import Spec
from dray_node_agent.decisions.claim_devices import (
    ClaimedDevice,
    DeviceFullError,
    NotPreparedError,
    claim_parts,
    device_uses,
    is_prepared_for,
    names_devices_of,
    prepared_claim,
    prepared_parts,
    prepared_with_file,
)
from dray_node_agent.decisions.inventory import NodeInventory
from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.decisions.rules import ClaimLiveCheck, PrepareClaim, Refusal
from dray_node_agent.decisions.visible_gpus import ClaimPart
from dray_node_agent.kubelet.prepared_claims import Claims, PreparedClaims
from dray_node_agent.rule_recorder import AgentRuleRecorder

T = TypeVar("T")
REMEMBERED_UNPREPARES = 1024
_PATIENCE_S = 10.0
"""How long a temporary error is retried here before the kubelet gets it: the kubelet itself retries
only after 60 to 90 s."""
READS_AT_ONCE = 8
"""Limit of simultaneous reads of the API server: each has its own connection, and the TLS handshake
costs agent and server more than the read."""


class NotReadyError(TemporaryError):
    """The agent can't prepare claims yet."""


class UnforeseenError(PermanentError):
    """An error that the agent did not expect."""


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """The kubelet's reference to a claim."""

    namespace: str
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """A claim to be prepared, with the inputs that its environment depends on."""

    claim: Object
    ref: ClaimRef
    traceparent: str
    pod: Object | None
    siblings: dict[str, tuple[ClaimPart, ...]]


@dataclass(frozen=True, slots=True)
class CompletedPreparation:
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
        patience_s: float = _PATIENCE_S,
        pods: Callable[[str], Object | None] = lambda _: None,
        enforcement_problem: Callable[[str], str] = lambda _: "",
        on_prepared: Callable[[CompletedPreparation], None] = lambda _: None,
        recorder: AgentRuleRecorder | None = None,
    ) -> None:
        """``pods``: a pod of this node by UID, if it is known. ``enforcement_problem``: why a
        device's enforcer is not ready; empty: it is."""
        self._kube = kube
        self._node = node
        self._pods = pods
        self._inventory = inventory
        self._prepared_claims = prepared_claims
        self._clock = clock
        self._patience_s = patience_s
        self._enforcement_problem = enforcement_problem
        self._on_prepared = on_prepared
        self._recorder = recorder or AgentRuleRecorder()
        self._unprepared: OrderedDict[str, None] = OrderedDict()
        self._of_claim: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reads = asyncio.Semaphore(READS_AT_ONCE)
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
        """Restore the claims of an earlier process.

        An unreadable checkpoint is kept and rebuilt from the API server's claims.

        Raises:
            KubeError: the checkpoint must be rebuilt, and the API does not list claims; call again.
            TemporaryError, OSError: call again.
        """
        claims = await self._prepared_claims.restore(self._rebuilt)
        self._log.info("claims restored", prepared=len(claims))

    async def sweep(self) -> tuple[str, ...]:
        """Remove claims that are deleted or deallocated, and files that belong to no claim. Returns
        the removed claims' uids. A claim that can't be read stays, and does not delay others."""
        gone = []
        for uid in sorted(self.claims):
            try:
                if await self._swept(uid):
                    gone.append(uid)
            except KubeError as error:
                self._log.info("claim not swept", uid=uid, error=str(error))
        if gone:
            self._log.warning("claims ended without Unprepare", uids=gone)
        await self._prepared_claims.remove_leftovers()
        return tuple(gone)

    async def drain(self) -> None:
        """Wait for all running work on claims."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _run_to_completion(self, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run concurrently, and continue if the caller is cancelled: a thread may be writing."""
        tasks = [asyncio.create_task(one) for one in work]
        for task in tasks:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(asyncio.gather(*tasks))

    def _lock_of(self, uid: str) -> asyncio.Lock:
        return self._of_claim.setdefault(uid, asyncio.Lock())

    async def _prepare_or_error(self, ref: ClaimRef) -> PreparedClaim | str:
        until_s = self._clock.monotonic_s() + self._patience_s
        backoff = Backoff(0.05, 1.0)
        while True:
            try:
                async with self._lock_of(ref.uid):
                    return await self._prepare(ref)
            except (DrayError, OSError) as error:
                problem: Exception = error
            except Exception as error:  # noqa: BLE001 - the other claims get their answers
                problem = self._unforeseen(ref, error)
            rest_s = backoff.next_s()
            is_temporary = isinstance(problem, TemporaryError)
            if is_temporary and self._clock.monotonic_s() + rest_s < until_s:
                await self._clock.sleep(rest_s)
                continue
            self.failures += 1
            self._log.warning(
                "claim not prepared",
                claim=f"{ref.namespace}/{ref.name}",
                uid=ref.uid,
                error=str(problem),
                temporary=is_temporary,
            )
            return str(problem)

    async def _prepare(self, ref: ClaimRef) -> PreparedClaim:
        started_s = self._clock.monotonic_s()
        obj, claim = await self._fetch(ref)
        results = claim.allocation.devices if claim.allocation else ()
        self._require_enforcement(one.id.device for one in results if not one.admin_access)
        known = self.claims.get(ref.uid)
        if known is not None and is_prepared_for(known, claim):
            await self._prepared_claims.write_file(known)
            return known
        traceparent = _traceparent(obj)
        attributes: dict[str, str | int] = {
            "k8s.namespace.name": ref.namespace,
            "k8s.pod.name": claim.pod_name,
            "k8s.node.name": self._node,
            "dray.claim": ref.name,
            "dray.devices": len(claim.allocation.devices) if claim.allocation else 0,
        }
        with spans.start("prepare", traceparent, attributes, kind="server") as span:
            pod = await self._pod_of(obj)
            asked = PrepareRequest(
                obj, ref, span.traceparent, pod, await self._siblings(pod, ref.name) if pod else {}
            )
            done = await self._enter(asked)
        took_us = int((self._clock.monotonic_s() - started_s) * 1e6)
        self._log.info("claim prepared", claim=f"{ref.namespace}/{ref.name}", uid=ref.uid)
        self._on_prepared(CompletedPreparation(done, self._clock.now_unix_s(), took_us))
        return done

    def _require_enforcement(self, devices: Iterable[str]) -> None:
        for device in devices:
            if problem := self._enforcement_problem(device):
                raise NotReadyError(f"GPU {device}: {problem}")

    async def _pod_of(self, obj: Object) -> Object | None:
        """The pod that the claim is reserved for, if there is only one."""
        reserved = list((obj.get("status") or {}).get("reservedFor") or ())
        if len(reserved) != 1 or reserved[0].get("resource", "pods") != "pods":
            return None
        uid, namespace = reserved[0].get("uid", ""), obj["metadata"]["namespace"]
        if (known := self._pods(uid)) is not None:
            return known
        try:
            pod = await self._read(PODS, reserved[0].get("name", ""), namespace)
        except NotServedError:
            raise
        except NotFoundError:
            return None
        return pod if pod["metadata"]["uid"] == uid else None

    async def _siblings(self, pod: Object, name: str) -> dict[str, tuple[ClaimPart, ...]]:
        """The CDI devices of the pod's other claims, by entry of ``spec.resourceClaims``."""
        entries = {entry: one for entry, one in claim_names(pod).items() if one != name}
        namespace, wanted = pod["metadata"]["namespace"], set(entries.values())
        prepared = {
            claim.name: claim
            for claim in self.claims.values()
            if claim.name in wanted and claim.namespace == namespace
        }
        return {
            entry: await self._parts(namespace, one, prepared.get(one))
            for entry, one in entries.items()
        }

    async def _parts(
        self, namespace: str, name: str, prepared: PreparedClaim | None
    ) -> tuple[ClaimPart, ...]:
        """The CDI devices of a claim. ``prepared`` may be the entry of an earlier allocation."""
        try:
            claim = claim_from(await self._read(CLAIMS, name, namespace))
            gpus = self._known_inventory().published_gpus
            if prepared is not None and is_prepared_for(prepared, claim):
                return prepared_parts(prepared, gpus)
            return claim_parts(claim, device_uses(claim, claim.uid, self._node, gpus))
        except NotServedError:
            raise
        except (NotFoundError, NotPreparedError):
            return ()  # the claim does not exist, or has no device of dray

    async def _fetch(self, ref: ClaimRef) -> tuple[Object, Claim]:
        try:
            obj = await self._read(CLAIMS, ref.name, ref.namespace)
        except NotServedError:
            raise  # Whether the claim exists is unknown.
        except NotFoundError as error:
            raise NotPreparedError(
                f"claim {ref.namespace}/{ref.name} does not exist, or no longer"
            ) from error
        return obj, claim_from(obj)

    async def _read(self, resource: Resource, name: str, namespace: str) -> Object:
        async with self._reads:
            return await self._kube.get(resource, name, namespace)

    def _known_inventory(self) -> NodeInventory:
        inventory = self._inventory()
        if inventory is None:
            raise NotReadyError(f"the GPUs of node {self._node} have not been read yet")
        return inventory

    async def _enter(self, asked: PrepareRequest) -> PreparedClaim:
        """Write the claim's entry and its CDI file, if its devices have capacity left."""
        try:
            return await self._try_to_enter(asked)
        except DeviceFullError:
            # Claims may have ended without Unprepare; only existing ones count.
            await self._remove_ended_claims(claim_from(asked.claim), asked.ref.uid)
            return await self._try_to_enter(asked)

    async def _try_to_enter(self, asked: PrepareRequest) -> PreparedClaim:
        uid = asked.ref.uid

        def decide(claims: Claims) -> PreparedClaim:
            known = claims.get(uid)  # from another agent of this node, or an earlier allocation
            if known is not None and is_prepared_for(known, claim_from(asked.claim)):
                return known
            decided = self._decide(
                asked, tuple([one for one in claims.values() if one is not known])
            )
            if isinstance(decided, Refusal):
                raise (DeviceFullError if decided.full else NotPreparedError)(decided.why)
            return decided

        return await self._prepared_claims.enter(uid, decide)

    def _decide(
        self, asked: PrepareRequest, held: tuple[PreparedClaim, ...]
    ) -> PreparedClaim | Refusal:
        inventory = self._known_inventory()
        return self._recorder.evaluate(
            PrepareClaim(
                claim=asked.claim,
                uid=asked.ref.uid,
                node=self._node,
                snapshot=inventory.snapshot,
                state=inventory.state,
                held=held,
                was_unprepared=asked.ref.uid in self._unprepared,
                traceparent=asked.traceparent,
                pod=asked.pod,
                siblings=asked.siblings,
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
                    await self._prepared_claims.remove(holder.uid, only=holder)
            except KubeError as error:
                # The claim counts as existing: its capacity stays in use.
                self._log.info(
                    "claim on the same device not read", uid=holder.uid, error=str(error)
                )

    async def _unprepare_or_error(self, ref: ClaimRef) -> str:
        try:
            async with self._lock_of(ref.uid):
                await self._prepared_claims.remove(ref.uid)
        except (TemporaryError, OSError) as error:
            self._log.error("claim not unprepared", uid=ref.uid, error=str(error))
            return f"claim {ref.namespace}/{ref.name}: {error}"
        except Exception as error:  # noqa: BLE001 - the other claims get their answers
            return str(self._unforeseen(ref, error))
        self._unprepared[ref.uid] = None
        while len(self._unprepared) > REMEMBERED_UNPREPARES:
            self._unprepared.popitem(last=False)
        return ""

    def _unforeseen(self, ref: ClaimRef, error: Exception) -> UnforeseenError:
        self._log.error("unforeseen error", uid=ref.uid, exc_info=error)
        return UnforeseenError(
            f"claim {ref.namespace}/{ref.name}: unexpected error in the node-agent; see its log: "
            f"{error!r}"
        )

    async def _swept(self, uid: str) -> bool:
        async with self._lock_of(uid):
            claim = self.claims.get(uid)
            if claim is None or await self._is_live(claim):
                return False
            await self._prepared_claims.remove(uid, only=claim)
            return uid not in self.claims

    async def _is_live(self, entry: PreparedClaim) -> bool:
        """Whether the API server has this claim, with the devices that were prepared."""
        obj: Object | None
        try:
            obj = await self._read(CLAIMS, entry.name, entry.namespace)
        except NotServedError:
            raise  # Whether the claim exists is unknown.
        except NotFoundError:
            obj = None
        return self._recorder.evaluate(ClaimLiveCheck(uid=entry.uid, claim=obj, entry=entry))

    async def _rebuilt(self) -> Claims:
        """The claims that are allocated here and reserved for pods in the API server, as if all had
        been prepared. An existing CDI file that names a claim's GPUs is kept as it is."""
        inventory = self._known_inventory()
        listed = await self._kube.list(CLAIMS)
        files = await self._prepared_claims.files()
        rebuilt: dict[str, PreparedClaim] = {}
        for obj in listed.objects:
            claim = claim_from(obj)
            if not claim.reserved_for:
                continue
            try:
                wanted = device_uses(claim, claim.uid, self._node, inventory.published_gpus)
            except PermanentError:
                continue  # not on this node, or its devices are gone
            try:
                rebuilt[claim.uid] = self._rebuilt_entry(obj, claim, wanted, files.get(claim.uid))
            except PermanentError as error:
                self._log.error("claim not restored", uid=claim.uid, why=str(error))
        self._log.info("checkpoint rebuilt", claims=len(rebuilt), with_files=len(files))
        return rebuilt

    def _rebuilt_entry(
        self, obj: Object, claim: Claim, wanted: Sequence[ClaimedDevice], file: Spec | None
    ) -> PreparedClaim:
        with_file = partial(prepared_with_file, claim, wanted, traceparent=_traceparent(obj))
        if file is not None and names_devices_of(file, claim, wanted):
            return with_file(cdi=file)
        try:
            if claim.spec.unreadable:
                raise NotPreparedError(claim.spec.unreadable)
            return prepared_claim(claim, wanted, self._known_inventory(), _traceparent(obj))
        except NotPreparedError:
            if file is None:
                raise
            return with_file(cdi=file)  # a later release prepared the claim


def _traceparent(obj: Object) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(TRACEPARENT, ""))
