"""One pod's object in the API, as the kubelet reads and writes it."""

import asyncio
import json
from typing import Any

import structlog

from dray.api.errors import DrayError, TemporaryError
from dray.kube.ports import EVENTS, PODS, Kube, NotFoundError, Object
from dray.runtime.backoff import Backoff
from dray_sandbox.events import event_of
from dray_sandbox.kubelet.claims import HeldClaim
from dray_sandbox.kubelet.statuses import is_terminal

CDI_ANNOTATION = "sandbox.dray.dev/cdi"
"""What the pod's containers got, as JSON: claims, and CDI ids and environment by container."""
SHORTEST_RETRY_S = 0.1
LONGEST_RETRY_S = 5.0


class PodObject:
    """The newest known state, by the watch or by our own writes; ``woken`` tells of news."""

    def __init__(self, kube: Kube, pod: Object, node: str) -> None:
        self.obj = pod
        self.gone = False
        """The object vanished from the API."""
        self.woken = asyncio.Event()
        self.log = structlog.get_logger().bind(node=node, pod=f"{self.namespace}/{self.name}")
        self._kube = kube
        self._said = ""

    @property
    def uid(self) -> str:
        """Of the pod."""
        return str(self.obj["metadata"]["uid"])

    @property
    def name(self) -> str:
        """Of the pod."""
        return str(self.obj["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Of the pod."""
        return str(self.obj["metadata"]["namespace"])

    @property
    def ending(self) -> bool:
        """Whether the pod is being deleted, or is gone."""
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
        """An annotation's text."""
        text = (self.obj["metadata"].get("annotations") or {}).get(name)
        return None if text is None else str(text)

    def recorded_claims(self) -> list[HeldClaim]:
        """The claims that an earlier stand-in prepared for the pod."""
        text = self.annotation(CDI_ANNOTATION)
        return [
            HeldClaim(one["uid"], one["namespace"], one["name"], tuple(one["drivers"]))
            for one in (json.loads(text)["claims"] if text else ())
        ]

    def update(self, pod: Object, *, gone: bool = False) -> None:
        """The watch told a state; it may be older than the answer to our last write."""
        if _newer(pod, self.obj):
            self.obj = pod
        self.gone = self.gone or gone
        self.woken.set()

    async def news(self, longest_s: float) -> None:
        """Wait until the watch tells something, or for a while."""
        try:
            async with asyncio.timeout(longest_s):
                await self.woken.wait()
        except TimeoutError:
            return

    async def annotate(self, name: str, content: dict[str, Any]) -> None:
        """Set an annotation to JSON."""
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        await self._patch({"metadata": {"annotations": {name: text}}}, "")

    async def set_status(self, status: dict[str, Any]) -> None:
        """Write a status, trying until the API takes it; a pod that vanished needs none."""
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
        """Confirm the deletion with grace 0, trying until the API takes it."""
        backoff = Backoff(SHORTEST_RETRY_S, LONGEST_RETRY_S)
        while not self.gone:
            try:
                await self._kube.delete(
                    PODS, self.name, self.namespace, uid=self.uid, grace_period_s=0
                )
            except TemporaryError as error:
                self.log.info("pod not deleted yet", error=str(error))
                await self.news(backoff.next_s())
            else:
                return

    async def complain(self, message: str) -> None:
        """Say why the pod does not start, each reason once in a row."""
        if message != self._said:
            self._said = message
            self.log.info("pod waits", why=message)
            await self.warn(
                "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {message}"
            )

    async def warn(self, reason: str, message: str) -> None:
        """Write a Warning event; that it can't be written is only logged."""
        event = event_of(
            "Pod",
            self.namespace,
            self.name,
            self.uid,
            "Warning",
            reason,
            message[:1024],
            "kubelet",
        )
        try:
            await self._kube.create(EVENTS, event, self.namespace)
        except DrayError as error:
            self.log.info("event not written", error=str(error))

    async def _patch(self, patch: dict[str, Any], subresource: str) -> None:
        fenced = {"metadata": {"uid": self.uid} | patch.get("metadata", {})}
        answer = await self._kube.patch(
            PODS, self.name, patch | fenced, self.namespace, subresource=subresource
        )
        if _newer(answer, self.obj):
            self.obj = answer


def _newer(one: Object, other: Object) -> bool:
    return int(one["metadata"]["resourceVersion"]) >= int(other["metadata"]["resourceVersion"])
