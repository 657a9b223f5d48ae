"""A small cluster as the webhook knows it, and requests to it."""

from collections.abc import Callable
from typing import Any

import jsonpatch
import pytest
from msgspec.structs import replace

from dray.api.devices import DeviceClass
from dray.api.names import BASE_TEMPLATE, DEVICE_CLASS, TEMPLATE_LABEL
from dray.api.pods import Policy, Pool
from dray.messages.facts import (
    ClusterObserved,
    DeviceClassObserved,
    PolicyObserved,
    PoolObserved,
    Synced,
    TemplateObserved,
)
from dray.messages.rpc import Lookup, LookupReply
from dray_webhook.decisions.injection import AdmissionIds
from dray_webhook.decisions.pods import admit_pod
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionAnswer, AdmissionRequest
from dray_webhook.decisions.view import View

P = "tensor-fusion.ai/"
GOOD = {
    P + "tflops-request": "100",
    P + "vram-request": "16Gi",
    P + "gpupool": "shared",
}
Annotations = dict[str, str | None]


def base_template(namespace: str = "dray-system", **request: Any) -> TemplateObserved:
    """The quick start's base template in valid form; ``request`` adds to its one request."""
    exactly = {
        "deviceClassName": DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": "true"}}],
        **request,
    }
    return TemplateObserved(
        revision=1,
        namespace=namespace,
        name=BASE_TEMPLATE,
        labels={TEMPLATE_LABEL: "true"},
        spec={
            "metadata": {},
            "spec": {"devices": {"requests": [{"name": "gpu-request", "exactly": exactly}]}},
        },
    )


def new_view() -> View:
    """Pools on shared and dedicated nodes, with and without DRA, all with one base template."""
    view = View()
    on = Policy(name="on", uid="1", dra_enabled=True, claim_template=BASE_TEMPLATE)
    off = Policy(name="off", uid="2", claim_template=BASE_TEMPLATE)
    pools = (
        Pool(name="shared", uid="3", template="on"),
        Pool(name="dedicated", uid="4", template="on", dedicated=True, isolation="soft"),
        Pool(name="without-dra", uid="5", template="off"),
        Pool(name="without-policy", uid="6"),
    )
    for policy in (on, off):
        view.apply(PolicyObserved(revision=1, policy=policy))
    for pool in pools:
        view.apply(PoolObserved(revision=1, pool=pool))
    view.apply(base_template())
    view.apply(ClusterObserved(revision=1, version="v1.36.3"))
    view.apply(Synced(revision=1, instance="a"))
    return view


def new_pod(annotations: Annotations | None = None, **spec: Any) -> dict[str, Any]:
    """A pod with the annotations of GOOD, changed; ``None`` takes one away."""
    wanted = {**GOOD, **(annotations or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train",
            "namespace": "team-a",
            "annotations": {name: text for name, text in wanted.items() if text is not None},
        },
        "spec": {"containers": [{"name": "app", "image": "app"}], **spec},
    }


def request_for(
    pod: dict[str, Any] | None,
    *,
    operation: str = "CREATE",
    old: dict[str, Any] | None = None,
    user: str = "system:serviceaccount:kube-system:replicaset-controller",
    **more: Any,
) -> AdmissionRequest:
    """The AdmissionRequest of one object."""
    return AdmissionRequest.model_validate(
        {
            "uid": "review-1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "team-a",
            "name": ((pod or {}).get("metadata") or {}).get("name", ""),
            "operation": operation,
            "userInfo": {"username": user},
            "object": pod,
            "oldObject": old,
            **more,
        }
    )


class Cluster:
    """A view, and pods admitted to it."""

    def __init__(self) -> None:
        self.view = new_view()
        self.rules = Installation("dray-system", ("dray-claim-controller",))
        self.ids = AdmissionIds("request-1", "00-" + "a" * 32 + "-" + "b" * 16 + "-01")

    def device_class(self, name: str, *selectors: str) -> None:
        """Put a DeviceClass there."""
        known = DeviceClass(name, selectors)
        self.view.apply(DeviceClassObserved(revision=1, device_class=known))

    def pool(self, name: str, **changes: Any) -> None:
        """Change or add a pool."""
        before = self.view.pools.get(name) or Pool(name=name, uid=name, template="on")
        self.view.apply(PoolObserved(revision=2, pool=replace(before, **changes)))

    def server(self, **abilities: Any) -> None:
        """Change what the API server keeps."""
        self.view.apply(ClusterObserved(revision=2, **abilities))

    def group(self, name: str) -> None:
        """A PodGroup was looked up: it asks for no GPUs, or there is none."""
        question = Lookup(kind="group", name=name, namespace="team-a")
        self.view = self.view.with_answers({question: LookupReply()})

    def admit(self, pod: dict[str, Any], **more: Any) -> AdmissionAnswer:
        return admit_pod(request_for(pod, **more), self.view, self.rules, self.ids)

    def errors(self, annotations: Annotations | None = None, **spec: Any) -> str:
        """The denial's message."""
        answer = self.admit(new_pod(annotations, **spec))
        assert not answer.allowed
        assert answer.patch == ()
        assert answer.requested is None
        return answer.message


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def new_cluster() -> type[Cluster]:
    """Fresh clusters for property tests."""
    return Cluster


@pytest.fixture
def pod() -> Callable[..., dict[str, Any]]:
    return new_pod


@pytest.fixture
def request_of() -> Callable[..., AdmissionRequest]:
    return request_for


@pytest.fixture
def template_of() -> Callable[..., TemplateObserved]:
    return base_template


@pytest.fixture
def patched() -> Callable[..., dict[str, Any]]:
    """The object with an answer's patch applied, by an independent implementation."""

    def apply(obj: dict[str, Any], answer: AdmissionAnswer) -> dict[str, Any]:
        assert answer.allowed, answer.message
        result: dict[str, Any] = jsonpatch.apply_patch(obj, list(answer.patch))
        return result

    return apply
