"""Touches pods whose claims are not prepared, so that the kubelet tries again."""

import asyncio
import math
from collections.abc import Callable, Collection
from typing import Final

import structlog

from dray.api.names import PREPARE_AGAIN
from dray.api.pods import Pod
from dray.kube.ports import PODS, Kube, NotFoundError
from dray.runtime.clock import Clock
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.changes import Unread
from dray_claim_controller.informers import Informers
from dray_claim_controller.pod_events import ReportEvent
from dray_claim_controller.preparation.decisions import (
    AwaitsPreparation,
    PreparationRetries,
    awaits_preparation,
    claims_to_prepare,
    touched_message,
)
from dray_claim_controller.work_queue import FairWorkQueue

_LOOKED_AT_ONCE: Final = 1000
_PREPARED_FOR_S: Final = 30.0
"""How long a pod whose claims are prepared is not touched: its kubelet is busy. If it takes longer,
the kubelet may have missed the agent's answer."""


class PreparationReconciler:
    """A pod is touched when it has waited for ``after_s`` on a node whose agent is there and has
    not prepared it. Each further touch comes after a longer wait. When the agent registers again,
    the pod is touched at once."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        clock: Clock,
        *,
        is_silent: Callable[[str], bool],
        note: ReportEvent,
        after_s: float,
        every_s: float = 0.25,
    ) -> None:
        """``is_silent``: whether a node's agent is away."""
        self._kube = kube
        self._informers = informers
        self._clock = clock
        self._is_silent = is_silent
        self._note = note
        self._after_s = after_s
        self._every_s = every_s
        self._unread: Unread[str] = Unread()
        self._waiting: dict[str, PreparationRetries] = {}
        """By UID of the pod."""
        self._prepared_s: dict[tuple[str, str], float] = {}
        """When it was reported first that a claim is prepared (monotonic), by node and UID."""
        self._touching = FairWorkQueue(
            clock, self._touch, name="prepare-again", group_of=lambda pod: pod[0]
        )
        self.touched = 0
        """How many times pods were touched in this term."""

    @property
    def waiting(self) -> int:
        """Pods that wait for their preparation now."""
        return len(self._waiting)

    async def run(self) -> None:
        """Look at all existing pods, then at every pod that changes, until cancelled."""
        cache = self._informers.cache
        self._unread.add(cache.pods)
        with cache.changed_pods.subscribed(self._unread):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._touching.run(), name="touch-unprepared")
                group.create_task(self._reconcile_forever(), name="look-for-unprepared")

    def agent_registered(self, node: str) -> None:
        """The node's kubelet has registered the agent: what waits there can be prepared now."""
        now_s, pods = self._clock.monotonic_s(), self._informers.cache.pods
        # The kubelet may have missed the answers of the earlier agent.
        self._prepared_s = {key: at for key, at in self._prepared_s.items() if key[0] != node}
        for uid, touches in self._waiting.items():
            if (cached := pods.get(uid)) is not None and cached.node == node:
                self._waiting[uid] = touches.agent_is_back(now_s)

    def claims_prepared(self, node: str, uids: Collection[str]) -> None:
        """The node's agent has prepared claims: their pods need no other try."""
        now_s, known = self._clock.monotonic_s(), self._informers.cache.claims
        for uid in uids:
            if uid in known:  # else a forged report could fill the memory
                self._prepared_s.setdefault((node, uid), now_s)

    def _forget_prepared(self) -> None:
        since_s = self._clock.monotonic_s() - 2 * _PREPARED_FOR_S
        self._prepared_s = {key: at for key, at in self._prepared_s.items() if at > since_s}

    def _is_prepared(self, cached: CachedPod, pod: Pod) -> bool:
        since_s = self._clock.monotonic_s() - _PREPARED_FOR_S
        return all(
            self._prepared_s.get((cached.node, claim.uid), -math.inf) > since_s
            for claim in claims_to_prepare(self._informers.cache, pod)
        )

    async def _reconcile_forever(self) -> None:
        while True:
            while self._unread:
                self._look(self._unread.take(_LOOKED_AT_ONCE))
                await asyncio.sleep(0)
            self._touch_due()
            self._forget_prepared()
            await self._clock.sleep(self._every_s)

    def _look(self, uids: list[str]) -> None:
        cache, now_s = self._informers.cache, self._clock.monotonic_s()
        for uid in uids:
            if not awaits_preparation(cache, cache.pods.get(uid)):
                self._waiting.pop(uid, None)
            elif uid not in self._waiting:
                self._waiting[uid] = PreparationRetries.waiting(now_s, self._after_s)

    def _touch_due(self) -> None:
        now_s, pods = self._clock.monotonic_s(), self._informers.cache.pods
        for uid, touches in self._waiting.items():
            cached = pods.get(uid)
            if touches.due_s > now_s or cached is None or cached.pod is None:
                continue
            if not self._is_silent(cached.node) and not self._is_prepared(cached, cached.pod):
                self._waiting[uid] = touches.touched(now_s, self._after_s)
                self._touching.add((cached.pod.namespace, uid))

    async def _touch(self, waiting: tuple[str, str]) -> None:
        """Change the pod's object. Raises any KubeError: it is tried again."""
        uid = waiting[1]
        cached, touches = self._informers.cache.pods.get(uid), self._waiting.get(uid)
        if cached is None or cached.pod is None or touches is None:
            return
        if not self._informers.evaluate(AwaitsPreparation(pod_uid=uid)):
            return
        pod, waited_s = cached.pod, self._clock.monotonic_s() - touches.since_s
        # The value differs each time: an equal one changes nothing.
        annotations = {PREPARE_AGAIN: f"{touches.count}-{self._clock.now_unix_s():.0f}"}
        patch = {"metadata": {"uid": uid, "annotations": annotations}}
        try:
            answer = await self._kube.patch(PODS, pod.name, patch, pod.namespace)
        except NotFoundError:
            return
        self._informers.apply_response(PODS, answer)
        self.touched += 1
        structlog.get_logger().info(
            "pod touched to be prepared again",
            pod=f"{pod.namespace}/{pod.name}",
            node=pod.node,
            waited_s=round(waited_s, 1),
            count=touches.count,
        )
        message = touched_message(pod.node, waited_s, touches.count)
        self._note(cached, "PreparationRetried", message)
