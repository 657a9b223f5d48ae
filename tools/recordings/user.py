"""The webhook without its HTTPS server, and a user who calls it."""

import asyncio
import itertools
import random
from dataclasses import dataclass

import jsonpatch

from dray.api.errors import DrayError
from dray.api.names import DEVICE_CLASS, DRAY_NAMESPACE, POOL_LABEL
from dray.bus.backlog import Backlog
from dray.bus.ports import Bus
from dray.kube.ports import PODS, Kube, NotFoundError, Object
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionAnswer, AdmissionRequest
from dray_webhook.service.facts_cache import FactsCache
from dray_webhook.service.handler import AdmissionHandler
from dray_webhook.service.recorder import ReviewRecorder
from tools.simulation import processes
from tools.simulation.cluster import DEDICATED, SHARED, TEAM, gpu_pod

_TIMEOUT_S = 10.0


def webhook(kube: Kube, bus: Bus, name: str) -> processes.RunningLoops:
    """The webhook without its HTTPS server, and the user who calls it."""
    rules = Installation(DRAY_NAMESPACE, ("claim-controller",))
    cache = FactsCache(bus)
    hints = Backlog(bus, capacity=100, what="pod.requested")
    inputs = Backlog(bus, capacity=1000, what="input.webhook")
    handler = AdmissionHandler(
        cache,
        hints,
        rules,
        source=f"/webhook/{name}",
        sampling_ratio=0.0,
        recorder=ReviewRecorder(inputs, name, rules),
    )
    user = User(kube, handler, cache)
    return processes.RunningLoops([cache.run(), hints.run(), inputs.run(), user.run()])


@dataclass(slots=True)
class User:
    """A user who submits pods and claims, some of them invalid, and deletes some pods."""

    kube: Kube
    webhook: AdmissionHandler
    cache: FactsCache

    async def run(self) -> None:
        """Run until the simulation ends."""
        draw = random.Random("user")
        for number in itertools.count(1):
            await asyncio.sleep(draw.uniform(1.0, 4.0))
            if number > 24 or not self.cache.view.synced:
                continue
            try:
                await self._submit(f"user-{number}", draw)
                await self._claim(f"claim-{number}", draw)
            except DrayError:
                continue

    async def _submit(self, name: str, draw: random.Random) -> None:
        pool = draw.choice((DEDICATED, SHARED, SHARED, "nowhere"))
        size = {"tflops": draw.choice((50, 100)), "vram_gib": draw.choice((8, 16)), "count": 1}
        pod = gpu_pod(name, pool, life_s=8.0, **size)
        request = _request(name, "Pod", pod)
        answer = await self.webhook.mutate_pod(request, timeout_s=_TIMEOUT_S)
        if answer.allowed:
            made = _patched(pod, answer)
            checked = request.model_copy(update={"object": made})
            await self.webhook.validate_pod(checked, timeout_s=_TIMEOUT_S)
            await self.kube.create(PODS, made, TEAM)
        if draw.random() < 0.3:
            await self._delete(f"user-{draw.randrange(1, 24)}")

    async def _delete(self, name: str) -> None:
        try:
            await self.kube.delete(PODS, name, TEAM)
        except NotFoundError:
            return

    async def _claim(self, name: str, draw: random.Random) -> None:
        """Send a claim to the webhook without creating it, because no one would delete it."""
        capacity = {"requests": {draw.choice(("tflops", "virtual_tflops")): "50"}}
        exactly = {"deviceClassName": DEVICE_CLASS, "capacity": capacity}
        claim = {
            "metadata": {
                "name": name,
                "namespace": TEAM,
                "labels": {POOL_LABEL: draw.choice((DEDICATED, SHARED))},
            },
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        request = _request(name, "ResourceClaim", claim)
        answer = await self.webhook.mutate_claim(request, timeout_s=_TIMEOUT_S)
        changed = request.model_copy(update={"object": _patched(claim, answer)})
        await self.webhook.validate_claim(changed, timeout_s=_TIMEOUT_S)


def _request(name: str, kind: str, obj: Object) -> AdmissionRequest:
    version = {"group": "", "version": "v1", "kind": kind}
    body = {"uid": f"review-{name}", "kind": version, "namespace": TEAM, "name": name}
    return AdmissionRequest.model_validate(body | {"object": obj})


def _patched(obj: Object, answer: AdmissionAnswer) -> Object:
    made: Object = jsonpatch.apply_patch(obj, list(answer.patch))
    return made
