"""Users who retry until their requests succeed."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from dray.api import names
from dray.api.errors import DrayError, TemporaryError
from dray.api.groups import GROUP_NAME_KEYS
from dray.api.names import GANG_TIMEOUT
from dray.kube.ports import POD_GROUPS, PODS, AlreadyExistsError, Kube, Object
from tools.faults.plan import NAMESPACE, PlannedPod
from tools.retry import retry

TIMEOUT_S = 120.0
"""Limit of every wait, long enough for busy machines."""


class NotReachedError(DrayError):
    """A state was not reached in time."""


class StackUsers:
    """All users, with one connection."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube

    async def live(self, pod: PlannedPod, began_s: float) -> None:
        """Create the pod at its time, and delete it after its life."""
        await sleep_until(began_s + pod.at_s)
        await self.retry(lambda: self.kube.create(PODS, _pod(pod), pod.namespace))
        if pod.life_s is not None:
            await asyncio.sleep(pod.life_s)
            await self.delete(pod.name, pod.namespace)

    async def group(self, name: str, minimum: int) -> None:
        """Create a PodGroup that has a tenth of the usual time."""
        annotations = {GANG_TIMEOUT: "30s"}
        metadata = {"name": name, "annotations": annotations}
        obj = {"metadata": metadata, "spec": {"minMember": minimum}}
        await self.retry(lambda: self.kube.create(POD_GROUPS, obj, NAMESPACE))

    async def delete_group(self, name: str) -> None:
        """Delete a PodGroup if it exists."""
        await self.retry(lambda: self.kube.delete(POD_GROUPS, name, NAMESPACE))

    async def delete(self, name: str, namespace: str) -> None:
        """Delete a pod if it exists."""
        await self.retry(lambda: self.kube.delete(PODS, name, namespace))

    async def retry(self, act: Callable[[], Awaitable[object]]) -> None:
        """Retry until it succeeds. Raises NotReachedError."""
        try:
            await retry(act, within_s=TIMEOUT_S)
        except AlreadyExistsError:
            return  # an earlier attempt succeeded without an answer
        except TemporaryError as error:
            raise NotReachedError(f"no answer in {TIMEOUT_S:g} s: {error}") from error


def _pod(pod: PlannedPod) -> Object:
    annotations = {
        names.GPUPOOL: pod.pool,
        names.GPU_COUNT: str(pod.gpus),
        names.TFLOPS_REQUEST: str(pod.tflops),
        names.VRAM_REQUEST: f"{pod.vram_gib}Gi",
    }
    if pod.group:
        annotations[GROUP_NAME_KEYS[0]] = pod.group
    container = {
        "name": "app",
        "image": "app",
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    return {
        "metadata": {"name": pod.name, "annotations": annotations},
        "spec": {"containers": [container]},
    }


async def sleep_until(at_s: float) -> None:
    """Wait until a time of the monotonic clock, if it is not past."""
    await asyncio.sleep(max(0.0, at_s - time.monotonic()))
