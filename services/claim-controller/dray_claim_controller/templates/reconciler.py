"""Creates derived templates as pods appear, and touches pods that waited for one."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from dray.api.names import TEMPLATE_READY
from dray.kube.ports import (
    CLAIMS,
    PODS,
    TEMPLATES,
    AlreadyExistsError,
    Changed,
    Deleted,
    Kube,
    KubeError,
    Listed,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
    WatchEvent,
)
from dray.runtime.clock import Clock
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.changes import Unread
from dray_claim_controller.facts.build import is_base_template
from dray_claim_controller.informers import Informers
from dray_claim_controller.pod_events import ReportEvent
from dray_claim_controller.templates.decisions import (
    Affected,
    Derived,
    Needed,
    Template,
    Unusable,
    difference,
    template_name,
    waits_for_claim,
)
from dray_claim_controller.tracing import deriving_for
from dray_claim_controller.work_queue import FairWorkQueue

ReportWait = Callable[[CachedPod, str], None]
"""Reports why a pod waits, in its BindRequest; empty: no reason is known any more."""
_CHECKED_AT_ONCE: Final = 1000
TemplateName = tuple[str, str]
"""Namespace and name."""


class TemplateReconciler:
    """One template per shape and namespace.

    A template that can't be made is tried again, at least every five minutes, as long as a pod
    waits for it; an event on these pods has the reason. It delays no other template.
    """

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        clock: Clock,
        *,
        dray_namespace: str,
        warn: ReportEvent,
        report_wait: ReportWait = lambda *_: None,
    ) -> None:
        self._kube = kube
        self._informers = informers
        self._dray_namespace = dray_namespace
        self._warn = warn
        self._report_wait = report_wait
        self._waiting: dict[TemplateName, dict[str, None]] = {}
        """UIDs of the pods to look at, by the template that they refer to."""
        self._failed: dict[TemplateName, None] = {}
        """Templates that could not be made when it was tried last."""
        self._reported_errors: dict[TemplateName, KubeError] = {}
        """Errors that were reported on the waiting pods."""
        self._templates = FairWorkQueue(
            clock, self._serve, name="templates", group_of=lambda name: name[0]
        )
        self._touches = FairWorkQueue(clock, self._touch, name="touch", group_of=lambda pod: pod[0])
        self._unchecked: Unread[str] = Unread()
        self._has_unchecked = asyncio.Event()
        """Whether pods are still to be looked at."""
        self._base_uids: dict[str, str] = {}

    async def run(self) -> None:
        """Serve all existing pods, then every pod that changes, until cancelled."""
        cache = self._informers.cache
        for obj in cache.plain[TEMPLATES.plural].values():
            self._note_base(obj)
        self._check_all()
        self._informers.listeners.append(self._listen)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._check_forever(), name="check-pods")
                group.create_task(self._templates.run(), name="make-templates")
                group.create_task(self._touches.run(), name="touch-pods")
        finally:
            self._informers.listeners.remove(self._listen)

    def _listen(self, resource: Resource, event: WatchEvent) -> None:
        if isinstance(event, Listed) and resource in (PODS, CLAIMS, TEMPLATES):
            # An object deleted before a list is only absent from it.
            self._check_all()
        if resource is PODS:
            if isinstance(event, Changed):
                self._check(event.object["metadata"]["uid"])
        elif resource is CLAIMS:
            # A claim can be deleted after its template was: its pod gets another one.
            if isinstance(event, Deleted):
                self._check_owners(event.object)
        elif resource is TEMPLATES:
            match event:
                case Changed(obj):
                    self._note_base(obj)
                case Listed():
                    for obj in self._informers.cache.plain[TEMPLATES.plural].values():
                        self._note_base(obj)
                case Deleted(obj):
                    self._check_users(obj)

    def _check_all(self) -> None:
        self._unchecked.add(self._informers.cache.pods)
        self._has_unchecked.set()

    async def _check_forever(self) -> None:
        while True:
            await self._has_unchecked.wait()
            for uid in self._unchecked.take(_CHECKED_AT_ONCE):
                self._check(uid)
            if not self._unchecked:
                self._has_unchecked.clear()
            await asyncio.sleep(0)

    def _check(self, uid: str) -> None:
        pod = self._informers.cache.pods.get(uid)
        if pod is None or pod.pod is None or not waits_for_claim(self._informers.cache, pod):
            return
        if not (name := template_name(pod)):
            return
        template = (pod.pod.namespace, name)
        waiting = self._waiting.setdefault(template, {})
        if uid not in waiting and (known := self._reported_errors.get(template)) is not None:
            self._report_failure(uid, name, known)
        waiting[uid] = None
        self._templates.add(template)

    async def _serve(self, template: TemplateName) -> None:
        """Make the template if a pod needs it. Raises any KubeError: it is tried again."""
        waiting = self._waiting.get(template, {})
        while waiting:
            uid = next(iter(waiting))
            needed = self._informers.evaluate(Template(pod_uid=uid))
            if needed is not None:
                pod = self._informers.cache.pods[uid]
                match needed:
                    case Unusable(message):
                        self._warn(pod, "ShapeUnusable", message)
                    case Needed(wanted, exists=False):
                        await self._try_to_make(pod, wanted, waiting)
                    case Needed(wanted, difference=str(found)):
                        self._differs(pod, wanted, found)
            waiting.pop(uid, None)
        for known in (self._waiting, self._failed, self._reported_errors):
            known.pop(template, None)

    async def _try_to_make(self, pod: CachedPod, wanted: Derived, waiting: Iterable[str]) -> None:
        template = (wanted.namespace, wanted.name)
        try:
            await self._make(pod, wanted)
        except KubeError as error:
            # Most failures are over at the next try, so only a refusal is reported at once.
            if isinstance(error, RefusedError) or template in self._failed:
                self._reported_errors[template] = error
                for uid in waiting:
                    self._report_failure(uid, wanted.name, error)
            self._failed[template] = None
            raise
        pods = self._informers.cache.pods
        for uid in waiting:
            self._touches.add((wanted.namespace, uid))
            if template in self._reported_errors and uid in pods:
                self._report_wait(pods[uid], "")

    def _report_failure(self, uid: str, name: str, error: KubeError) -> None:
        pod = self._informers.cache.pods.get(uid)
        if pod is None:
            return
        reason = "TemplateRefused" if isinstance(error, RefusedError) else "TemplateNotMade"
        message = f"template {name} can't be made, and is tried again: {error}"
        self._warn(pod, reason, message)
        self._report_wait(pod, message)

    async def _make(self, pod: CachedPod, wanted: Derived) -> None:
        with deriving_for(pod, wanted.name, wanted.base):
            existing = await self._create(wanted)
        if existing is not None and (found := difference(wanted.spec, existing.get("spec"))):
            self._differs(pod, wanted, found)

    def _differs(self, pod: CachedPod, wanted: Derived, found: str) -> None:
        self._warn(
            pod,
            "TemplateDiffers",
            f"template {wanted.name} is not the one dray derives: {found}. "
            "Delete it, and dray creates it again",
        )

    async def _create(self, wanted: Derived) -> Object | None:
        """Create the template. Returns None, or the template if another has made it meanwhile."""
        try:
            created = await self._kube.create(TEMPLATES, wanted.manifest(), wanted.namespace)
        except AlreadyExistsError:
            existing = await self._kube.get(TEMPLATES, wanted.name, wanted.namespace)
            self._informers.apply_response(TEMPLATES, existing)
            return existing
        name = f"{wanted.namespace}/{wanted.name}"
        structlog.get_logger().info("template derived", template=name, base=wanted.base)
        self._informers.apply_response(TEMPLATES, created)
        return None

    async def _touch(self, waiting: tuple[str, str]) -> None:
        """Touch the pod, so that an old ResourceClaim controller looks at it again. Raises any
        KubeError: it is tried again."""
        pod = self._informers.cache.pods.get(waiting[1])
        if pod is None or pod.pod is None or not waits_for_claim(self._informers.cache, pod):
            return
        held = pod.pod
        annotations = {TEMPLATE_READY: template_name(pod)}
        patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        try:
            answer = await self._kube.patch(PODS, held.name, patch, held.namespace)
        except NotFoundError:
            return
        self._informers.apply_response(PODS, answer)

    def _check_users(self, obj: Object) -> None:
        metadata = obj["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        for uid in tuple(self._informers.cache.template_users.get(name, ())):
            self._check(uid)

    def _check_owners(self, claim: Object) -> None:
        for owner in claim["metadata"].get("ownerReferences") or ():
            self._check(owner["uid"])

    def _note_base(self, obj: Object) -> None:
        if not is_base_template(obj):
            return
        metadata = obj["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        before = self._base_uids.get(name)
        self._base_uids[name] = metadata["uid"]
        if before in (None, metadata["uid"]):
            return
        affected = self._informers.evaluate(
            Affected(
                namespace=metadata["namespace"],
                name=metadata["name"],
                dray_namespace=self._dray_namespace,
                bases=tuple(self._base_uids),
            )
        )
        for uid in affected:
            self._warn(
                self._informers.cache.pods[uid],
                "BaseTemplateReplaced",
                f"base template {name} was replaced after this pod was admitted; the pod keeps "
                "the shape made from the old one. Create it again to use the new one",
            )
