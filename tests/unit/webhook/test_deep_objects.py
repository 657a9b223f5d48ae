"""Objects that are nested deep are admitted or refused with a reason, and recorded."""

import json
from contextlib import aclosing

import msgspec
import pytest

from dray.api.json_codec import MAX_NESTING
from dray.api.names import DEVICE_CLASS
from dray.bus.backlog import Backlog
from dray.bus.memory import MemoryBus
from dray.bus.topology import INPUTS_STREAM, STREAMS
from dray.messages.base import decode
from dray.messages.facts import TemplateObserved
from dray.messages.inputs import Reviewed
from dray_webhook.decisions.claims import mutate_claim, validate_claim
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import read_review
from dray_webhook.service.recorder import ReviewRecorder, replay_answer

P = "tensor-fusion.ai/"
DEPTHS = (100, 2_000, 9_900)


def nested(depth: int) -> msgspec.Raw:
    return msgspec.Raw(b'{"a":' + b"[" * depth + b"]" * depth + b"}")


def review_of(obj, **more):
    """The request as it is read from HTTP."""
    request = {
        "uid": "review-1",
        "kind": {"group": "resource.k8s.io", "kind": obj["kind"]},
        "namespace": "team-a",
        "operation": "CREATE",
        "object": obj,
        **more,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return read_review(msgspec.json.encode(review))


def claim(depth: int):
    exactly = {"deviceClassName": DEVICE_CLASS, "capacity": {"requests": {"tflops": "10"}}}
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "labels": {P + "gpupool": "shared"}},
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": exactly}],
                "config": [{"opaque": {"driver": "x.example.com", "parameters": nested(depth)}}],
            }
        },
    }


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_claim_with_deep_parameters_is_mapped_and_passes(cluster, patched, depth):
    request = review_of(claim(depth))
    assert validate_claim(request, cluster.view).allowed
    answer = mutate_claim(request)
    changed = patched(request.object, answer)
    [mapped] = changed["spec"]["devices"]["requests"]
    assert mapped["exactly"]["capacity"]["requests"] == {"virtual_tflops": "10"}
    [config] = changed["spec"]["devices"]["config"]
    assert msgspec.json.encode(config["opaque"]["parameters"]) == bytes(nested(depth))


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_pod_with_deep_managed_fields_is_admitted(cluster, pod, depth):
    asked = pod()
    asked["metadata"]["managedFields"] = [{"manager": "x", "fieldsV1": nested(depth)}]
    request = review_of(asked, kind={"group": "", "version": "v1", "kind": "Pod"})
    answer = cluster.admit(request.object)
    assert answer.allowed, answer.message
    assert answer.requested is not None


def with_config(template_of, parameters):
    base = template_of("team-a")
    devices = base.spec["spec"]["devices"]
    devices["config"] = [{"opaque": {"driver": "x.example.com", "parameters": parameters}}]
    return base


def test_a_base_template_may_be_as_deep_as_can_be_put_on_a_pod(cluster, pod, patched, template_of):
    deep = msgspec.json.decode(bytes(nested(200)))
    cluster.view.apply(with_config(template_of, deep))
    answer = cluster.admit(asked := pod())
    text = patched(asked, answer)["metadata"]["annotations"][P + "shape"]
    config = json.loads(text)["spec"]["devices"]["config"]
    assert config[0]["opaque"]["parameters"] == deep


def test_a_base_template_may_have_parameters_of_many_containers(cluster, pod, patched, template_of):
    wide = {"a": [[]] * 1_000}
    fact = decode(msgspec.json.encode(with_config(template_of, wide)), TemplateObserved)
    cluster.view.apply(fact)
    answer = cluster.admit(asked := pod())
    text = patched(asked, answer)["metadata"]["annotations"][P + "shape"]
    config = json.loads(text)["spec"]["devices"]["config"]
    assert config[0]["opaque"]["parameters"] == wide


def test_a_deeper_base_template_is_refused_with_its_name(cluster, template_of):
    cluster.view.apply(with_config(template_of, {"a": nested(2_000)}))
    assert cluster.errors().endswith(
        'ResourceClaimTemplate "team-a/tensor-fusion-gpu-template": a config entry is nested more '
        f"than {MAX_NESTING} levels deep: dray can't put it on a pod; make it shallower"
    )


async def test_a_deep_review_is_recorded_and_answered_again(cluster):
    bus, rules = MemoryBus(), Installation("dray-system", ("dray-claim-controller",))
    backlog = Backlog(bus, capacity=10, what="reviews")
    request = review_of(claim(9_900))
    answer = mutate_claim(request)
    ReviewRecorder(backlog, "a", rules).record(
        request, cluster.view, cluster.ids, {}, answer, path="mutate-claims"
    )
    for spec in STREAMS:
        await bus.ensure(spec)
    await backlog.flush()
    async with aclosing(bus.read(INPUTS_STREAM)) as inputs:
        reviewed = decode(await anext(inputs), Reviewed)
    assert replay_answer(reviewed, cluster.view) == answer
