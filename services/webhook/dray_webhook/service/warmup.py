"""Admits a sample pod at start, to fill parser tables and caches.

Without it the first pod waits tens of milliseconds longer than the second.
"""

from dray.api.names import (
    BASE_TEMPLATE,
    DEVICE_CLASS,
    DRA_CEL_EXPRESSION,
    DRA_ENABLED,
    GPU_COUNT,
    GPUPOOL,
    PREFIX,
    TEMPLATE_LABEL,
    TFLOPS_REQUEST,
    VRAM_REQUEST,
)
from dray.api.pods import Pool
from dray.messages.facts import PoolObserved, Synced, TemplateObserved
from dray_webhook.decisions.injection import AdmissionIds
from dray_webhook.decisions.pods import admit_pod
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionAnswer, AdmissionRequest, write_review
from dray_webhook.decisions.view import View

_NAMESPACE = "warmup"
_EXPRESSION = """
(device.attributes["model"] == "H100" || device.attributes["model"].matches("^A[0-9]+")) &&
device.capacity["vram"].AsApproximateFloat64() >= 40000000000 &&
device.attributes["node_total_gpus"] >= 8
"""
_ASKED = {
    DRA_ENABLED: "true",
    TFLOPS_REQUEST: "100",
    VRAM_REQUEST: "16Gi",
    GPU_COUNT: "2",
    GPUPOOL: _NAMESPACE,
}


def warm_up() -> tuple[AdmissionAnswer, ...]:
    """Admit pods with a generated selector, their own expression and an unknown annotation.

    Nothing is kept or sent.
    """
    answers = []
    for more in ({}, {DRA_CEL_EXPRESSION: _EXPRESSION}, {PREFIX + "qoss": "low"}):
        metadata = {"name": _NAMESPACE, "annotations": {**_ASKED, **more}}
        pod = {"metadata": metadata, "spec": {"containers": [{"name": _NAMESPACE}]}}
        request = AdmissionRequest(uid=_NAMESPACE, namespace=_NAMESPACE, object=pod)
        answer = admit_pod(request, _view(), Installation(_NAMESPACE), AdmissionIds("", ""))
        write_review(request.uid, answer)
        answers.append(answer)
    return tuple(answers)


def _view() -> View:
    exactly = {"deviceClassName": DEVICE_CLASS, "allocationMode": "ExactCount", "count": 1}
    base = TemplateObserved(
        revision=1,
        namespace=_NAMESPACE,
        name=BASE_TEMPLATE,
        labels={TEMPLATE_LABEL: "true"},
        spec={"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    )
    view = View()
    for fact in (
        PoolObserved(revision=1, pool=Pool(name=_NAMESPACE, uid=_NAMESPACE)),
        base,
        Synced(revision=1, instance=_NAMESPACE),
    ):
        view.apply(fact)
    return view
