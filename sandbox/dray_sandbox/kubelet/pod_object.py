"""Reads and writes one pod's object."""

import asyncio
import json
from typing import Any

import msgspec
import structlog

from dray.api.errors import DrayError, TemporaryError
from dray.kube.ports import EVENTS, PODS, Kube, NotFoundError, Object
from dray.runtime.backoff import Backoff
from dray_sandbox.events import event_object
from dray_sandbox.kubelet.claims import ClaimInfo, PluginDevice, Prepared
from dray_sandbox.kubelet.statuses import is_terminal

CDI_ANNOTATION = "sandbox.dray.dev/cdi"
"""JSON: the pod's prepared claims, and CDI ids and environment by container."""
SHORTEST_RETRY_S = 0.1
LONGEST_RETRY_S = 5.0
_MOST_EVENT_TRIES = 12


class PodObject:
    """The newest known state of a pod, from the watch or from its own writes.

    The watch sets ``changed`` if more than the status has changed: then the kubelet synchronises
    the pod.
    """

    def __init__(self, kube: Kube, pod: Object, node: str) -> None:
        self.obj = pod
        self.gone = False
        """Whether the object was removed from the API."""
        self.changed = asyncio.Event()
        self.log = structlog.get_logger().bind(node=node, pod=f"{self.namespace}/{self.name}")
        self._kube = kube
        self._last_warning = ""

    @property
    def uid(self) -> str:
        """From the pod's metadata."""
        return str(self.obj["metadata"]["uid"])

    @property
    def name(self) -> str:
        """From the pod's metadata."""
        return str(self.obj["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """From the pod's metadata."""
        return str(self.obj["metadata"]["namespace"])

    @property
    def ending(self) -> bool:
        """Whether the pod is being deleted or was removed."""
        return self.gone or bool(self.obj["metadata"].get("deletionTimestamp"))

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended."""
        return is_terminal(self.obj)

    @property
    def started(self) -> bool:
        """Whether the pod runs."""
        return (self.obj.get("status") or {}).get("phase") == "Running"

    def annotation(self, name: str) -> str | None:
        """An annotation's value."""
        text = (self.obj["metadata"].get("annotations") or {}).get(name)
        return None if text is None else str(text)

    def recorded_claims(self) -> list[ClaimInfo]:
        """The claims that an earlier process prepared for the pod."""
        return msgspec.convert(self._record().get("claims", []), list[ClaimInfo])

    def recorded_devices(self) -> Prepared:
        """The devices of these claims."""
        return msgspec.convert(self._record().get("devices", {}), dict[str, list[PluginDevice]])

    def _record(self) -> dict[str, Any]:
        text = self.annotation(CDI_ANNOTATION)
        return dict(json.loads(text)) if text else {}

    def update(self, pod: Object, *, gone: bool = False) -> None:
        """Apply a state from the watch, unless it is older than the last write's answer."""
        before = self.obj
        if _is_newer(pod, self.obj):
            self.obj = pod
        self.gone = self.gone or gone
        if gone or _differs(before, self.obj):
            self.changed.set()

    async def wait_for_change(self, longest_s: float) -> None:
        """Wait for an event of the watch, for at most ``longest_s`` seconds."""
        try:
            async with asyncio.timeout(longest_s):
                await self.changed.wait()
        except TimeoutError:
            return

    async def annotate(self, name: str, content: dict[str, Any]) -> None:
        """Set an annotation to JSON."""
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        await self._patch({"metadata": {"annotations": {name: text}}}, "")

    async def set_status(self, status: dict[str, Any]) -> None:
        """Write a status, with retries, unless the pod is removed."""
        backoff = Backoff(SHORTEST_RETRY_S, LONGEST_RETRY_S)
        while not self.gone:
            try:
                await self._patch({"status": status}, "status")
            except NotFoundError:
                self.gone = True
            except TemporaryError as error:
                self.log.info("status not written yet", error=str(error))
                await asyncio.sleep(backoff.next_s())
            else:
                return

    async def delete(self) -> None:
        """Confirm the deletion with grace 0, with retries."""
        backoff = Backoff(SHORTEST_RETRY_S, LONGEST_RETRY_S)
        while not self.gone:
            try:
                await self._kube.delete(
                    PODS, self.name, self.namespace, uid=self.uid, grace_period_s=0
                )
            except TemporaryError as error:
                self.log.info("pod not deleted yet", error=str(error))
                await self.wait_for_change(backoff.next_s())
            else:
                return

    async def warn_once(self, reason: str, message: str) -> None:
        """Write a Warning event, unless the last one was the same."""
        if message != self._last_warning:
            self._last_warning = message
            self.log.info("pod waits", why=message)
            await self.warn(reason, message)

    async def warn(self, reason: str, message: str) -> None:
        """Write a Warning event. If the API server does not answer, retry a few times, as client-go
        does. A failure is only logged."""
        event = event_object(
            "Pod",
            self.namespace,
            self.name,
            self.uid,
            "Warning",
            reason,
            message[:1024],
            "kubelet",
        )
        backoff = Backoff(SHORTEST_RETRY_S, LONGEST_RETRY_S)
        for _ in range(_MOST_EVENT_TRIES):
            try:
                await self._kube.create(EVENTS, event, self.namespace)
            except DrayError as error:
                self.log.info("event not written", error=str(error))
                if not isinstance(error, TemporaryError):
                    return
                await asyncio.sleep(backoff.next_s())
            else:
                return

    async def _patch(self, patch: dict[str, Any], subresource: str) -> None:
        fenced = {"metadata": {"uid": self.uid} | patch.get("metadata", {})}
        answer = await self._kube.patch(
            PODS, self.name, patch | fenced, self.namespace, subresource=subresource
        )
        if _is_newer(answer, self.obj):
            self.obj = answer


def _is_newer(one: Object, other: Object) -> bool:
    return int(one["metadata"]["resourceVersion"]) >= int(other["metadata"]["resourceVersion"])


def _differs(one: Object, other: Object) -> bool:
    """Like the kubelet's ``podsDifferSemantically``."""
    fields = ("labels", "annotations", "deletionTimestamp", "deletionGracePeriodSeconds")
    before, now = one["metadata"], other["metadata"]
    return one.get("spec") != other.get("spec") or any(
        (before.get(field) or None) != (now.get(field) or None) for field in fields
    )
