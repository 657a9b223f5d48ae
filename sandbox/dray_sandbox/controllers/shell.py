"""Watches pods, claims and templates, and carries out what the rules say."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

import structlog

from dray.api.errors import DrayError, TemporaryError
from dray.api.names import CLAIM_FINALIZER
from dray.kube.ports import (
    CLAIMS,
    EVENTS,
    PODS,
    TEMPLATES,
    Changed,
    Deleted,
    Kube,
    Listed,
    NotFoundError,
    Object,
    Resource,
)
from dray_sandbox.controllers.queue import ControllerQueue
from dray_sandbox.controllers.rules import (
    AskForPod,
    Complain,
    CreateClaim,
    DeleteClaim,
    DropFinalizer,
    PodEffect,
    RecordClaims,
    Reserve,
    UpdateStatus,
    claims_of,
    is_done,
    owner_uid,
    sync_claim,
    sync_pod,
)
from dray_sandbox.events import counted_again, event_of

COMPONENT = "resource_claim"
_WORKERS = 4
_REMEMBERED_PODS = 10_000


class _TemplateMissingError(TemporaryError):
    """A pod's template does not exist: the pod is tried again later."""


class _Cache:
    """Objects of one kind by (namespace, name)."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}

    def get(self, namespace: str, name: str) -> Object | None:
        return self.objects.get((namespace, name))

    def put(self, obj: Object) -> None:
        """Keep the newer of what is known and ``obj``."""
        known = self.objects.get(_key(obj))
        if known is None or _revision(known) < _revision(obj):
            self.objects[_key(obj)] = obj

    def drop(self, obj: Object) -> None:
        known = self.objects.get(_key(obj))
        if known is not None and known["metadata"]["uid"] == obj["metadata"]["uid"]:
            del self.objects[_key(obj)]


class ResourceClaimController:
    """Makes claims from templates, and releases what no pod uses."""

    def __init__(self, kube: Kube, *, watch_templates: bool = True) -> None:
        self._kube = kube
        self._watch_templates = watch_templates
        self._pods, self._claims, self._templates = _Cache(), _Cache(), _Cache()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._warned: dict[tuple[str, str], Object] = {}
        self._queue = ControllerQueue()
        self._synced: set[str] = set()
        self._ready = asyncio.Event()
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(TEMPLATES, self._templates, self._see_template))
            group.create_task(self._watch(CLAIMS, self._claims, self._see_claim))
            group.create_task(self._watch(PODS, self._pods, self._see_pod))
            await self._ready.wait()
            for _ in range(_WORKERS):
                group.create_task(self._work())

    async def _watch(
        self, resource: Resource, cache: _Cache, see: Callable[[Object, bool], None]
    ) -> None:
        async for event in self._kube.watch(resource):
            match event:
                case Listed(objects):
                    present = {_key(obj): obj for obj in objects}
                    for key, obj in list(cache.objects.items()):
                        if key not in present:
                            cache.drop(obj)
                            see(obj, True)
                    for obj in objects:
                        self._replace(cache, obj, see)
                    self._synced.add(resource.plural)
                    if len(self._synced) == 3:
                        self._ready.set()
                case Changed(obj):
                    self._replace(cache, obj, see)
                case Deleted(obj):
                    cache.drop(obj)
                    see(obj, True)

    def _replace(self, cache: _Cache, obj: Object, see: Callable[[Object, bool], None]) -> None:
        known = cache.get(*_key(obj))
        if known is not None and known["metadata"]["uid"] != obj["metadata"]["uid"]:
            cache.drop(known)
            see(known, True)
        cache.put(obj)
        see(obj, False)

    def _see_template(self, template: Object, deleted: bool) -> None:
        """1.36 looks at once at the pods that wait for a template; older servers don't."""
        if deleted or not self._watch_templates:
            return
        namespace, name = _key(template)
        for pod in self._pods.objects.values():
            references = pod["spec"].get("resourceClaims") or ()
            if pod["metadata"]["namespace"] == namespace and any(
                reference.get("resourceClaimTemplateName") == name for reference in references
            ):
                self._queue.add("pod:" + "/".join(_key(pod)))

    def _see_claim(self, claim: Object, deleted: bool) -> None:
        namespace, name = _key(claim)
        if not deleted:
            self._queue.add(f"claim:{namespace}/{name}")
        for pod in self._pods.objects.values():
            if pod["metadata"]["namespace"] == namespace and name in claims_of(pod):
                self._queue.add("pod:" + "/".join(_key(pod)))

    def _see_pod(self, pod: Object, deleted: bool) -> None:
        if not pod["spec"].get("resourceClaims"):
            return
        namespace, name = _key(pod)
        if deleted:
            self._remember_gone(pod["metadata"]["uid"])
        if deleted or is_done(pod):
            for claim in claims_of(pod):
                self._queue.add(f"claim:{namespace}/{claim}")
        if not deleted:
            self._queue.add(f"pod:{namespace}/{name}")

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            kind, _, rest = key.partition(":")
            namespace, name = rest.split("/")
            try:
                await (self._pod if kind == "pod" else self._claim)(namespace, name)
            except DrayError as error:
                pause_s = self._queue.failed(key)
                self._log.info("retrying", item=key, pause_s=pause_s, error=str(error))
            else:
                self._queue.done(key)

    async def _pod(self, namespace: str, name: str) -> None:
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
        """Do one thing for a pod; the claims it now has, by reference."""
        match effect:
            case CreateClaim(reference, claim):
                created = await self._kube.create(CLAIMS, claim, pod["metadata"]["namespace"])
                self._claims.put(created)
                return {reference: created["metadata"]["name"]}
            case RecordClaims(names):
                return names
            case Reserve(claim):
                self._claims.put(await self._kube.update(CLAIMS, claim, subresource="status"))
            case Complain(message):
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

    async def _claim(self, namespace: str, name: str) -> None:
        claim = self._claims.get(namespace, name)
        if claim is None:
            return
        for effect in sync_claim(claim, self._pods.get, self._gone.__contains__):
            match effect:
                case AskForPod(pod, uid):
                    await self._ask(namespace, pod, uid)
                    self._queue.add(f"claim:{namespace}/{name}")
                case UpdateStatus(changed):
                    claim = await self._kube.update(CLAIMS, changed, subresource="status")
                    self._claims.put(claim)
                case DropFinalizer():
                    claim = await self._kube.update(CLAIMS, _without_finalizer(claim))
                    self._claims.put(claim)
                case DeleteClaim():
                    uid = claim["metadata"]["uid"]
                    await self._kube.delete(CLAIMS, name, namespace, uid=uid)

    async def _ask(self, namespace: str, name: str, uid: str) -> None:
        """A live read before a reservation is dropped: the cache may be behind a scheduler."""
        try:
            pod = await self._kube.get(PODS, name, namespace)
        except NotFoundError:
            self._remember_gone(uid)
            return
        if pod["metadata"]["uid"] != uid:
            self._remember_gone(uid)
        else:
            self._pods.put(pod)

    def _remember_gone(self, uid: str) -> None:
        for said in [key for key in self._warned if key[0] == uid]:
            del self._warned[said]
        self._gone[uid] = None
        if len(self._gone) > _REMEMBERED_PODS:
            self._gone.popitem(last=False)

    async def _warn(self, pod: Object, message: str) -> None:
        """A Warning on the pod; the same again only counts up, as client-go's recorder does."""
        metadata = pod["metadata"]
        namespace, said = metadata["namespace"], (metadata["uid"], message)
        if (known := self._warned.get(said)) is not None:
            patch = counted_again(known)
            with suppress(NotFoundError):
                name = known["metadata"]["name"]
                self._warned[said] = await self._kube.patch(EVENTS, name, patch, namespace)
                return
        event = event_of(
            "Pod",
            namespace,
            metadata["name"],
            metadata["uid"],
            "Warning",
            "FailedResourceClaimCreation",
            message,
            COMPONENT,
        )
        self._warned[said] = await self._kube.create(EVENTS, event, namespace)


def _without_finalizer(claim: Object) -> Object:
    metadata = dict(claim["metadata"])
    metadata["finalizers"] = [
        name for name in metadata.get("finalizers") or () if name != CLAIM_FINALIZER
    ]
    return claim | {"metadata": metadata}


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _revision(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
