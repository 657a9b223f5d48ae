"""What the stand-in of a kubelet writes about a pod."""

from typing import Any

import pytest

from dray.kube.memory import MemoryKube
from dray.kube.ports import EVENTS, KubeUnavailableError, Object, RefusedError, Resource
from dray_sandbox.kubelet import pod_object
from dray_sandbox.kubelet.pod_object import PodObject

POD: Object = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {}}


class FailingKube(MemoryKube):
    """Raises these errors first."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    async def create(self, resource: Resource, obj: Object, *args: Any, **options: Any) -> Object:
        if self.errors:
            raise self.errors.pop(0)
        return await super().create(resource, obj, *args, **options)


@pytest.mark.parametrize(
    ("errors", "written"),
    [
        ([KubeUnavailableError("busy"), KubeUnavailableError("busy")], ["no room"]),
        ([RefusedError("the namespace is being deleted", status=403)], []),
    ],
    ids=["unavailable", "refused"],
)
async def test_a_warning_is_written_once_the_api_server_is_back(
    monkeypatch: pytest.MonkeyPatch, errors: list[Exception], written: list[str]
) -> None:
    monkeypatch.setattr(pod_object, "SHORTEST_RETRY_S", 0.001)
    kube = FailingKube(*errors)
    pod = PodObject(kube, POD, "n1")
    for _ in range(2):
        await pod.warn_once("Failed", "no room")

    listed = await kube.list(EVENTS, "default")
    assert [one["message"] for one in listed.objects] == written
    assert kube.errors == []
