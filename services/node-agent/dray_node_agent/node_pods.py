"""The pods of this node, as the API server shows them."""

import structlog

from dray.kube.ports import PODS, Changed, Deleted, Kube, KubeError, Listed, Object
from dray.recording.redaction import redacted
from dray.runtime.backoff import Backoff

_LONGEST_PAUSE_S = 30.0


class NodePods:
    """Follows the pods that are bound to ``node``."""

    def __init__(self, kube: Kube, node: str) -> None:
        self._kube = kube
        self._node = node
        self._pods: dict[str, Object] = {}
        self.are_listed = False
        """Whether all pods of the node were seen once."""

    def get(self, uid: str) -> Object | None:
        """A pod by UID, without the fields that no decision reads; None: it was not seen yet."""
        return self._pods.get(uid)

    def all(self) -> list[Object]:
        """The pods that were seen, in the form that ``get`` returns."""
        return list(self._pods.values())

    async def run(self) -> None:
        """Loop: watch the pods."""
        backoff = Backoff(most_s=_LONGEST_PAUSE_S)
        while True:
            try:
                await self._follow(backoff)
            except KubeError as error:
                structlog.get_logger().error(
                    "the node's pods are not watched, will retry", error=str(error)
                )
            await backoff.pause()

    async def _follow(self, backoff: Backoff) -> None:
        selector = f"spec.nodeName={self._node}"
        async for event in self._kube.watch(PODS, field_selector=selector):
            backoff.reset()
            match event:
                case Listed(objects):
                    self._pods = {_uid(one): _kept(one) for one in objects}
                    self.are_listed = True
                case Changed(obj):
                    self._pods[_uid(obj)] = _kept(obj)
                case Deleted(obj):
                    self._pods.pop(_uid(obj), None)


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _kept(pod: Object) -> Object:
    return redacted(PODS.plural, pod)
