"""Writes reports: a BindRequest per pod, events, and the GPUs of containers."""

from typing import Any

from dray.api.names import CONTAINER_GPU_IDS, DRAY_SCHEDULER
from dray.api.pods import Pod
from dray.kube.ports import BIND_REQUESTS, EVENTS, PODS, AlreadyExistsError, Kube, Object
from dray.runtime.clock import Clock
from dray_claim_controller.informers import Informers
from dray_claim_controller.report.decisions import event_messages


class ReportWrites:
    """Writes fields that differ from the cached object."""

    def __init__(self, kube: Kube, informers: Informers, clock: Clock, *, instance: str) -> None:
        self._kube = kube
        self._informers = informers
        self._clock = clock
        self._instance = instance

    async def bind_request(self, pod: Pod, spec: dict[str, Any], status: dict[str, Any]) -> None:
        """Have the pod's BindRequest say this; one of an earlier pod of the same name is replaced.
        Nothing is written for a pod that is gone: a later pod may have its name."""
        if pod.uid not in self._informers.cache.pods:
            return
        spec = event_messages.with_summary(pod, spec)
        name = f"{pod.namespace}/{pod.name}"
        known = self._informers.cache.plain[BIND_REQUESTS.plural].get(name)
        if known is not None and (known.get("spec") or {}).get("podUID") != pod.uid:
            uid = known["metadata"]["uid"]
            await self._kube.delete(BIND_REQUESTS, pod.name, pod.namespace, uid=uid)
            known = None
        if known is None:
            known = await self._make(pod, spec)
        elif not _says(known.get("spec") or {}, spec):
            known = await self._kube.patch(BIND_REQUESTS, pod.name, {"spec": spec}, pod.namespace)
        if not _says(known.get("status") or {}, status):
            known = await self._kube.patch(
                BIND_REQUESTS, pod.name, {"status": status}, pod.namespace, subresource="status"
            )
        self._informers.apply_response(BIND_REQUESTS, known)

    async def _make(self, pod: Pod, spec: dict[str, Any]) -> Object:
        try:
            new = event_messages.bind_request(pod, spec)
            return await self._kube.create(BIND_REQUESTS, new, pod.namespace)
        except AlreadyExistsError:
            return await self._kube.patch(BIND_REQUESTS, pod.name, {"spec": spec}, pod.namespace)

    async def containers(self, pod: Pod, text: str) -> None:
        """Write to the pod which cards each container got."""
        patch = {"metadata": {"uid": pod.uid, "annotations": {CONTAINER_GPU_IDS: text}}}
        answer = await self._kube.patch(PODS, pod.name, patch, pod.namespace)
        self._informers.apply_response(PODS, answer)

    async def scheduled(self, pod: Pod, node: str) -> None:
        """Write the event that kube-scheduler writes about pods that it has bound, in dray's
        name."""
        await self.event(
            event_messages.pod_reference(pod),
            "Scheduled",
            event_messages.scheduled(pod, node),
            warning=False,
            component=DRAY_SCHEDULER,
            action="Binding",
        )

    async def event(
        self,
        about: Object,
        reason: str,
        message: str,
        *,
        warning: bool,
        component: str = event_messages.COMPONENT,
        action: str = "",
    ) -> None:
        """An event about an object (an ``involvedObject``), or one more of the same reason."""
        new = event_messages.event(
            about,
            reason,
            message,
            warning=warning,
            instance=self._instance,
            now_unix_s=self._clock.now_unix_s(),
            component=component,
            action=action,
        )
        name, namespace = new["metadata"]["name"], new["metadata"]["namespace"]
        try:
            await self._kube.create(EVENTS, new, namespace)
        except AlreadyExistsError:
            known = await self._kube.get(EVENTS, name, namespace)
            if known.get("message") != new["message"]:
                patch = event_messages.repeated(known, new)
                await self._kube.patch(EVENTS, name, patch, namespace)


def _says(known: Any, wanted: Any) -> bool:
    """Whether ``known`` holds all of ``wanted`` (None: absent)."""
    if isinstance(wanted, dict):
        return isinstance(known, dict) and all(
            _says(known.get(name), value) for name, value in wanted.items()
        )
    return bool(known == wanted)
