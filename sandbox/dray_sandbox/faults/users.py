"""Users who try again until they are heard."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from dray.api import names
from dray.api.errors import DrayError, TemporaryError
from dray.kube.ports import PODS, AlreadyExistsError, Kube, Object
from dray_sandbox.faults.plan import PodWish
from dray_sandbox.retry import retry

PATIENCE_S = 120.0
"""How long anything may take: far more than a calm machine needs, for busy ones."""


class StuckStackError(DrayError):
    """Something did not come about in time."""


class StackUsers:
    """All of them, on one connection."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube

    async def live(self, wish: PodWish, began_s: float) -> None:
        """Create the pod when it is time, and delete it if it is not to stay."""
        await sleep_until(began_s + wish.at_s)
        await self.retry(lambda: self.kube.create(PODS, _pod(wish), wish.namespace))
        if wish.life_s is not None:
            await asyncio.sleep(wish.life_s)
            await self.delete(wish.name, wish.namespace)

    async def delete(self, name: str, namespace: str) -> None:
        """Delete a pod; absent is fine."""
        await self.retry(lambda: self.kube.delete(PODS, name, namespace))

    async def retry(self, act: Callable[[], Awaitable[object]]) -> None:
        """Try until an answer comes. Raises StuckError."""
        try:
            await retry(act, within_s=PATIENCE_S)
        except AlreadyExistsError:
            return  # an earlier try was heard, and its answer lost
        except TemporaryError as error:
            raise StuckStackError(f"no answer in {PATIENCE_S:g} s: {error}") from error


def _pod(wish: PodWish) -> Object:
    annotations = {
        names.GPUPOOL: wish.pool,
        names.GPU_COUNT: str(wish.cards),
        names.TFLOPS_REQUEST: str(wish.tflops),
        names.VRAM_REQUEST: f"{wish.vram_gib}Gi",
    }
    container = {
        "name": "app",
        "image": "app",
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    return {
        "metadata": {"name": wish.name, "annotations": annotations},
        "spec": {"containers": [container]},
    }


async def sleep_until(at_s: float) -> None:
    """Wait for a moment of the monotonic clock; not at all if it is over."""
    await asyncio.sleep(max(0.0, at_s - time.monotonic()))
