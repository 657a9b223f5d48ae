"""Watches pods, claims and templates, and carries out the rules' effects."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from dray.api.errors import TemporaryError
from dray.api.names import CLAIM_FINALIZER
from dray.kube.ports import (
    CLAIMS,
    EVENTS,
    PODS,
    TEMPLATES,
    Kube,
    NotFoundError,
    Object,
    Resource,
)
from dray.runtime.clock import SystemClock
from dray_claim_controller.work_queue import FairWorkQueue
from dray_sandbox.controllers.rules import (
    CreateClaim,
    DeleteClaim,
    DropFinalizer,
    PodEffect,
    ReadPod,
    RecordClaims,
    Reserve,
    TemplateMissing,
    UpdateStatus,
    claims_of,
    is_done,
    owner_uid,
    sync_claim,
    sync_pod,
)
from dray_sandbox.events import count_patch, event_object
from dray_sandbox.informer import changes, key_of

_COMPONENT = "resource_claim"
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.005, 1000.0
"""client-go's DefaultTypedControllerRateLimiter."""
_MOST_DELETED_UIDS = 10_000


class _TemplateMissingError(TemporaryError):
    """A pod's template does not exist; the pod is retried."""


class _Cache:
    """Objects of one kind by (namespace, name)."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}

    def get(self, namespace: str, name: str) -> Object | None:
        return self.objects.get((namespace, name))

    def put(self, obj: Object) -> None:
        """Store ``obj`` unless a newer one is stored."""
        known = self.objects.get(key_of(obj))
        if known is None or _revision(known) < _revision(obj):
            self.objects[key_of(obj)] = obj

    def drop(self, obj: Object) -> None:
        known = self.objects.get(key_of(obj))
        if known is not None and known["metadata"]["uid"] == obj["metadata"]["uid"]:
            del self.objects[key_of(obj)]


class ResourceClaimController:
    """Generates claims from templates, and releases claims that no pod uses."""

    def __init__(self, kube: Kube, *, watch_templates: bool = True) -> None:
        self._kube = kube
        self._watch_templates = watch_templates
        self._pods, self._claims, self._templates = _Cache(), _Cache(), _Cache()
        self._deleted_uids: OrderedDict[str, None] = OrderedDict()
        self._warned: dict[tuple[str, str], Object] = {}
        self._queue = FairWorkQueue(
            SystemClock(),
            self._sync,
            name="resourceclaims",
            group_of=lambda key: key.partition("/")[0],
            first_s=_FIRST_PAUSE_S,
            most_s=_LAST_PAUSE_S,
            add_ends_rest=True,
        )
        self._synced: set[str] = set()
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(TEMPLATES, self._templates, self._handle_template))
            group.create_task(self._watch(CLAIMS, self._claims, self._handle_claim))
            group.create_task(self._watch(PODS, self._pods, self._handle_pod))
            await self._ready.wait()
            group.create_task(self._queue.run())

    async def _watch(
        self, resource: Resource, cache: _Cache, handle: Callable[[Object, bool], None]
    ) -> None:
        async for batch in changes(self._kube, resource):
            for obj, deleted in batch:
                (cache.drop if deleted else cache.put)(obj)
                handle(obj, deleted)
            self._synced.add(resource.plural)
            if len(self._synced) == 3:
                self._ready.set()

    def _handle_template(self, template: Object, deleted: bool) -> None:
        """Retry the pods that wait for the template at once, as 1.36 does."""
        if deleted or not self._watch_templates:
            return
        namespace, name = key_of(template)
        for pod in self._pods.objects.values():
            references = pod["spec"].get("resourceClaims") or ()
            if pod["metadata"]["namespace"] == namespace and any(
                reference.get("resourceClaimTemplateName") == name for reference in references
            ):
                self._queue.add(f"{namespace}/pod/{pod['metadata']['name']}")

    def _handle_claim(self, claim: Object, deleted: bool) -> None:
        namespace, name = key_of(claim)
        if not deleted:
            self._queue.add(f"{namespace}/claim/{name}")
        for pod in self._pods.objects.values():
            if pod["metadata"]["namespace"] == namespace and name in claims_of(pod):
                self._queue.add(f"{namespace}/pod/{pod['metadata']['name']}")

    def _handle_pod(self, pod: Object, deleted: bool) -> None:
        if not pod["spec"].get("resourceClaims"):
            return
        namespace, name = key_of(pod)
        if deleted:
            self._remember_deleted(pod["metadata"]["uid"])
        if deleted or is_done(pod):
            for claim in claims_of(pod):
                self._queue.add(f"{namespace}/claim/{claim}")
        if not deleted:
            self._queue.add(f"{namespace}/pod/{name}")

    async def _sync(self, key: str) -> None:
        namespace, kind, name = key.split("/")
        await (self._sync_pod if kind == "pod" else self._sync_claim)(namespace, name)

    async def _sync_pod(self, namespace: str, name: str) -> None:
        pod = self._pods.get(namespace, name)
        if pod is None:
            return
        owned = [c for c in self._claims.objects.values() if owner_uid(c) == pod["metadata"]["uid"]]
        made: dict[str, str] = {}
        for effect in sync_pod(pod, self._claims.get, self._templates.get, owned):
            made |= await self._carry_out(pod, effect)
        if made:
            await self._record(pod, made)

    async def _carry_out(self, pod: Object, effect: PodEffect) -> dict[str, str]:
        """Carry out an effect for a pod; returns the new claims by reference."""
        match effect:
            case CreateClaim(reference, claim):
                created = await self._kube.create(CLAIMS, claim, pod["metadata"]["namespace"])
                self._claims.put(created)
                return {reference: created["metadata"]["name"]}
            case RecordClaims(names):
                return names
            case Reserve(claim):
                self._claims.put(await self._kube.update(CLAIMS, claim, subresource="status"))
            case TemplateMissing(message):
                await self._warn(pod, message)
                raise _TemplateMissingError(message)
        return {}

    async def _record(self, pod: Object, made: dict[str, str]) -> None:
        known = (pod.get("status") or {}).get("resourceClaimStatuses") or []
        kept = [entry for entry in known if entry["name"] not in made]
        added = [{"name": ref, "resourceClaimName": claim} for ref, claim in made.items()]
        metadata = pod["metadata"]
        patch = {
            "metadata": {"uid": metadata["uid"]},
            "status": {"resourceClaimStatuses": [*kept, *added]},
        }
        patched = await self._kube.patch(
            PODS, metadata["name"], patch, metadata["namespace"], subresource="status"
        )
        self._pods.put(patched)

    async def _sync_claim(self, namespace: str, name: str) -> None:
        claim = self._claims.get(namespace, name)
        if claim is None:
            return
        for effect in sync_claim(claim, self._pods.get, self._deleted_uids.__contains__):
            match effect:
                case ReadPod(pod, uid):
                    await self._read_pod(namespace, pod, uid)
                    self._queue.add(f"{namespace}/claim/{name}")
                case UpdateStatus(changed):
                    claim = await self._kube.update(CLAIMS, changed, subresource="status")
                    self._claims.put(claim)
                case DropFinalizer():
                    claim = await self._kube.update(CLAIMS, _without_finalizer(claim))
                    self._claims.put(claim)
                case DeleteClaim():
                    uid = claim["metadata"]["uid"]
                    await self._kube.delete(CLAIMS, name, namespace, uid=uid)

    async def _read_pod(self, namespace: str, name: str, uid: str) -> None:
        """Read a pod before its reservation is removed: the cache may be behind the scheduler."""
        try:
            pod = await self._kube.get(PODS, name, namespace)
        except NotFoundError:
            self._remember_deleted(uid)
            return
        if pod["metadata"]["uid"] != uid:
            self._remember_deleted(uid)
        else:
            self._pods.put(pod)

    def _remember_deleted(self, uid: str) -> None:
        for warning in [key for key in self._warned if key[0] == uid]:
            del self._warned[warning]
        self._deleted_uids[uid] = None
        if len(self._deleted_uids) > _MOST_DELETED_UIDS:
            self._deleted_uids.popitem(last=False)

    async def _warn(self, pod: Object, message: str) -> None:
        """Write a Warning event on the pod, or count it if it exists, like client-go's recorder."""
        metadata = pod["metadata"]
        namespace, warning = metadata["namespace"], (metadata["uid"], message)
        if (known := self._warned.get(warning)) is not None:
            patch = count_patch(known)
            with suppress(NotFoundError):
                name = known["metadata"]["name"]
                self._warned[warning] = await self._kube.patch(EVENTS, name, patch, namespace)
                return
        event = event_object(
            "Pod",
            namespace,
            metadata["name"],
            metadata["uid"],
            "Warning",
            "FailedResourceClaimCreation",
            message,
            _COMPONENT,
        )
        self._warned[warning] = await self._kube.create(EVENTS, event, namespace)


def _without_finalizer(claim: Object) -> Object:
    metadata = dict(claim["metadata"])
    metadata["finalizers"] = [
        name for name in metadata.get("finalizers") or () if name != CLAIM_FINALIZER
    ]
    return claim | {"metadata": metadata}


def _revision(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
