"""Creates derived templates as pods appear, and touches pods that waited for one."""

import asyncio
from collections.abc import Callable

import structlog

from dray.domain.errors import TemporaryError
from dray.domain.names import TEMPLATE_READY
from dray.kube.ports import (
    CLAIMS,
    PODS,
    TEMPLATES,
    AlreadyExistsError,
    Changed,
    Deleted,
    Kube,
    Listed,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
    WatchEvent,
)
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.deciding.templating import Affected, Needed, Template
from dray_claim_controller.observe.facts import is_base_template
from dray_claim_controller.observe.seen import SeenPod
from dray_claim_controller.observe.watching import Watching
from dray_claim_controller.templates.rules import (
    Derived,
    Unusable,
    difference,
    template_name,
    waits_for_claim,
)
from dray_claim_controller.tracing import deriving

Tell = Callable[[SeenPod, str, str], None]
"""Reports (pod, reason, message) as a warning event."""


class TemplateKeeper:
    """One template per shape and namespace."""

    def __init__(
        self, kube: Kube, watching: Watching, clock: Clock, *, dray_namespace: str, tell: Tell
    ) -> None:
        self._kube = kube
        self._watching = watching
        self._clock = clock
        self._dray_namespace = dray_namespace
        self._tell = tell
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._base_uids: dict[str, str] = {}

    async def run(self) -> None:
        """Serve all pods there are, then every pod that changes, until cancelled."""
        picture = self._watching.picture
        for obj in picture.plain[TEMPLATES.plural].values():
            self._note_base(obj)
        for uid in picture.pods:
            self._queue.put_nowait(uid)
        self._watching.listeners.append(self._listen)
        try:
            backoff = Backoff(0.05, 5.0)
            while True:
                uid = await self._queue.get()
                try:
                    await self._serve(uid)
                    backoff.reset()
                except (TemporaryError, NotFoundError) as error:
                    structlog.get_logger().warning("template not made yet", error=str(error))
                    await self._clock.sleep(backoff.next_s())
                    self._queue.put_nowait(uid)
                except RefusedError as error:
                    structlog.get_logger().error("template not made", pod=uid, error=str(error))
        finally:
            self._watching.listeners.remove(self._listen)

    def _listen(self, resource: Resource, event: WatchEvent) -> None:
        if isinstance(event, Listed) and resource in (PODS, CLAIMS, TEMPLATES):
            # What was deleted before a list is told by its absence only.
            for uid in self._watching.picture.pods:
                self._queue.put_nowait(uid)
        if resource is PODS:
            if isinstance(event, Changed):
                self._queue.put_nowait(event.object["metadata"]["uid"])
        elif resource is CLAIMS:
            # A claim can be deleted after its template was: its pod gets another one.
            if isinstance(event, Deleted):
                self._requeue_owners(event.object)
        elif resource is TEMPLATES:
            match event:
                case Changed(obj):
                    self._note_base(obj)
                case Listed(objects):
                    for obj in objects:
                        self._note_base(obj)
                case Deleted(obj):
                    self._requeue_users(obj)

    async def _serve(self, uid: str) -> None:
        needed = self._watching.ask(Template(pod_uid=uid))
        if needed is None:
            return
        pod = self._watching.picture.pods[uid]
        match needed:
            case Unusable(message):
                self._tell(pod, "ShapeUnusable", message)
            case Needed(wanted, exists=False):
                await self._make(pod, wanted)
            case Needed(wanted, difference=str(found)):
                self._differs(pod, wanted, found)

    async def _make(self, pod: SeenPod, wanted: Derived) -> None:
        with deriving(pod, wanted.name, wanted.base):
            existing = await self._create(pod, wanted)
        if existing is None:
            return
        if found := difference(wanted.spec, existing.get("spec")):
            self._differs(pod, wanted, found)

    def _differs(self, pod: SeenPod, wanted: Derived, found: str) -> None:
        self._tell(
            pod,
            "TemplateDiffers",
            f"template {wanted.name} is not the one dray derives: {found}. "
            "Delete it, and dray creates it again",
        )

    async def _create(self, pod: SeenPod, wanted: Derived) -> Object | None:
        """The template that another has made meanwhile; None where it is made, or refused."""
        try:
            created = await self._kube.create(TEMPLATES, wanted.manifest(), wanted.namespace)
        except AlreadyExistsError:
            return await self._kube.get(TEMPLATES, wanted.name, wanted.namespace)
        except RefusedError as error:
            self._tell(pod, "TemplateRefused", f"template {wanted.name}: {error}")
            return None
        name = f"{wanted.namespace}/{wanted.name}"
        structlog.get_logger().info("template derived", template=name, base=wanted.base)
        self._watching.answered(TEMPLATES, created)
        await self._touch_waiting(wanted)
        return None

    async def _touch_waiting(self, wanted: Derived) -> None:
        picture = self._watching.picture
        for pod in picture.our_pods():
            held = pod.pod
            if held is None or held.namespace != wanted.namespace:
                continue
            if template_name(pod) != wanted.name or not waits_for_claim(picture, pod):
                continue
            patch = {"metadata": {"uid": pod.uid, "annotations": {TEMPLATE_READY: wanted.name}}}
            try:
                answer = await self._kube.patch(PODS, held.name, patch, held.namespace)
            except NotFoundError:
                continue
            self._watching.answered(PODS, answer)

    def _requeue_users(self, obj: Object) -> None:
        metadata = obj["metadata"]
        for pod in self._watching.picture.our_pods():
            if (
                pod.pod is not None
                and pod.pod.namespace == metadata["namespace"]
                and template_name(pod) == metadata["name"]
            ):
                self._queue.put_nowait(pod.uid)

    def _requeue_owners(self, claim: Object) -> None:
        for owner in claim["metadata"].get("ownerReferences") or ():
            self._queue.put_nowait(owner["uid"])

    def _note_base(self, obj: Object) -> None:
        if not is_base_template(obj):
            return
        metadata = obj["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        before = self._base_uids.get(name)
        self._base_uids[name] = metadata["uid"]
        if before in (None, metadata["uid"]):
            return
        affected = self._watching.ask(
            Affected(
                namespace=metadata["namespace"],
                name=metadata["name"],
                dray_namespace=self._dray_namespace,
                bases=tuple(self._base_uids),
            )
        )
        for uid in affected:
            self._tell(
                self._watching.picture.pods[uid],
                "BaseTemplateReplaced",
                f"base template {name} was replaced after this pod was admitted; the pod keeps "
                "the shape made from the old one. Create it again to use the new one",
            )
