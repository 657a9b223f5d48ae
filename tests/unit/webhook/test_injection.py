"""What goes into the pod, on dedicated and on shared nodes."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.api.devices import DeviceClass
from dray.api.enforcement import Enforcement
from dray.api.names import DRA_CEL_EXPRESSION, POD_ANNOTATIONS
from dray_webhook.decisions.injection import AdmissionIds
from dray_webhook.decisions.review import write_review

P = "tensor-fusion.ai/"
CLAIM = "tensor-fusion-gpu-claim"
BASE = "tensor-fusion-gpu-template"
GATE = {"name": P + "allocation"}


def test_every_container_refers_to_the_one_claim(cluster, pod, patched):
    asked = pod(
        containers=[{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "1"}}}],
        initContainers=[{"name": "c"}],
    )

    spec = patched(asked, answer := cluster.admit(asked))["spec"]

    assert spec["resourceClaims"] == [
        {"name": CLAIM, "resourceClaimTemplateName": answer.requested.template}
    ]
    assert [one["resources"]["claims"] for one in spec["containers"]] == [[{"name": CLAIM}]] * 2
    assert spec["initContainers"][0]["resources"]["claims"] == [{"name": CLAIM}]
    assert spec["containers"][1]["resources"]["limits"] == {"cpu": "1"}


def test_shared_nodes_get_a_gate_and_the_default_scheduler(cluster, pod, patched):
    asked = pod(schedulerName="tensor-fusion-scheduler", schedulingGates=[{"name": "x/y"}])

    spec = patched(asked, cluster.admit(asked))["spec"]

    assert spec["schedulerName"] == "default-scheduler"
    assert spec["schedulingGates"] == [{"name": "x/y"}, GATE]
    assert "tolerations" not in spec


def test_dedicated_nodes_get_drays_scheduler_and_a_toleration(cluster, pod, patched):
    asked = pod({P + "gpupool": "dedicated"}, tolerations=[{"key": "other", "operator": "Exists"}])

    spec = patched(asked, cluster.admit(asked))["spec"]

    assert spec["schedulerName"] == "tensor-fusion-scheduler"
    assert "schedulingGates" not in spec
    assert spec["tolerations"] == [
        {"key": "other", "operator": "Exists"},
        {
            "key": P + "dedicated",
            "operator": "Equal",
            "value": "dedicated",
            "effect": "NoSchedule",
        },
    ]


def test_needs_that_dray_does_not_read_take_the_gated_path_on_dedicated_nodes(
    cluster, pod, patched
):
    asked = pod(
        {P + "gpupool": "dedicated"},
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    )

    spec = patched(asked, answer := cluster.admit(asked))["spec"]

    assert spec["schedulerName"] == "default-scheduler"
    assert spec["schedulingGates"] == [GATE]
    assert spec["tolerations"][0]["key"] == P + "dedicated"
    assert answer.requested.understood["binder"] == "kube-scheduler"


def test_resources_and_ports_of_the_node_are_read_by_dray(cluster, pod, patched):
    container = {
        "name": "main",
        "resources": {"limits": {"ephemeral-storage": "1Gi", "example.com/nic": "1"}},
        "ports": [{"containerPort": 80, "hostPort": 80}],
    }
    asked = pod({P + "gpupool": "dedicated"}, containers=[container])

    spec = patched(asked, answer := cluster.admit(asked))["spec"]

    assert spec["schedulerName"] == "tensor-fusion-scheduler"
    assert answer.requested.understood["binder"] == "dray"


@pytest.mark.parametrize(
    "resource", ["example.com/nic", "deviceclass.resource.kubernetes.io/nic.example.com"]
)
def test_resources_that_a_class_stands_for_are_kube_scheduler_s_to_give(
    cluster, pod, patched, resource
):
    name = "nic.example.com"
    cluster.view.classes[name] = DeviceClass(name, extended_resource="example.com/nic")
    container = {"name": "main", "resources": {"limits": {resource: "1"}}}
    asked = pod({P + "gpupool": "dedicated"}, containers=[container])

    spec = patched(asked, cluster.admit(asked))["spec"]

    assert spec["schedulerName"] == "default-scheduler"
    assert spec["schedulingGates"] == [GATE]


def test_a_toleration_that_covers_the_taint_is_enough(cluster, pod, patched):
    asked = pod({P + "gpupool": "dedicated"}, tolerations=[{"operator": "Exists"}])

    spec = patched(asked, cluster.admit(asked))["spec"]

    assert spec["tolerations"] == [{"operator": "Exists"}]


def test_gated_pods_are_denied_where_the_server_drops_taints(cluster, pod):
    cluster.server(device_taints=False)

    assert 'GPUPool "shared" is on shared nodes' in cluster.errors()
    assert "volume data" in cluster.errors(
        {P + "gpupool": "dedicated"}, volumes=[{"name": "data", "nfs": {"server": "a"}}]
    )
    assert cluster.admit(pod({P + "gpupool": "dedicated"})).allowed


@pytest.mark.parametrize("spec", [{"resourceClaims": None}, {"schedulingGates": None}])
def test_lists_that_are_null_are_empty(cluster, pod, patched, spec):
    asked = pod(**spec)

    assert patched(asked, cluster.admit(asked))["spec"]["schedulingGates"] == [GATE]


def test_a_pod_that_names_its_node_is_denied(cluster):
    assert 'spec.nodeName is "n1": expected none' in cluster.errors(nodeName="n1")


def test_another_scheduler_is_replaced_with_a_word(cluster, pod):
    answer = cluster.admit(pod(schedulerName="volcano"))

    assert 'spec.schedulerName "volcano" is replaced by "default-scheduler"' in answer.warnings[0]


def test_annotations_of_dray_are_written_over_the_users(cluster, pod, patched):
    own = dict.fromkeys(("request-id", "traceparent", "shape"), "forged")
    asked = pod({P + name: text for name, text in {**own, "void": "9", "decision": "9"}.items()})

    annotations = patched(asked, answer := cluster.admit(asked))["metadata"]["annotations"]

    assert annotations[P + "request-id"] == "request-1"
    assert annotations[P + "traceparent"] == cluster.ids.traceparent
    assert annotations[P + "shape"].startswith('{"metadata":')
    assert P + "void" not in annotations
    assert P + "decision" not in annotations
    assert f"annotation {P}void is written by dray only; yours was removed" in answer.warnings


def test_a_copied_pod_is_rewritten_to_its_own_shape(cluster, pod, patched):
    first = patched(asked := pod(), cluster.admit(asked))
    first["metadata"]["annotations"][P + "gpu-count"] = "2"

    again = patched(first, answer := cluster.admit(first))

    assert [one["name"] for one in again["spec"]["resourceClaims"]] == [CLAIM]
    assert (
        again["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
        == answer.requested.template
        != first["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    )


_names = st.sampled_from(["shared", "dedicated"])
_specs = st.fixed_dictionaries(
    {},
    optional={
        "schedulerName": st.sampled_from(["tensor-fusion-scheduler", "volcano"]),
        "initContainers": st.just([{"name": "init"}]),
        "schedulingGates": st.lists(
            st.sampled_from([GATE, {"name": "x/y"}]), unique_by=lambda gate: gate["name"]
        ),
        "tolerations": st.lists(st.sampled_from([{"operator": "Exists"}, {"key": "a"}])),
        "resourceClaims": st.sampled_from(
            [[], [{"name": "gpu", "resourceClaimTemplateName": BASE}]]
        ),
        "volumes": st.sampled_from([[], [{"name": "v", "nfs": {}}]]),
    },
)


@given(
    pool=_names,
    spec=_specs,
    count=st.integers(1, 32),
    model=st.sampled_from([None, "A100", 'a"b']),
    old=st.booleans(),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_second_call_changes_nothing_but_ids(
    new_cluster, pod, patched, pool, spec, count, model, old
):
    cluster = new_cluster()
    if old:
        cluster.server(version="v1.34.4")
    asked = pod(
        {P + "gpupool": pool, P + "gpu-count": str(count), P + "gpu-model": model},
        **copy.deepcopy(spec),
    )
    once = patched(asked, cluster.admit(asked))
    again = cluster.admit(once)

    assert again.patch == ()

    cluster.ids = AdmissionIds("request-2", "00-" + "c" * 32 + "-" + "d" * 16 + "-00")
    paths = {operation["path"] for operation in cluster.admit(once).patch}
    assert paths == {
        "/metadata/annotations/tensor-fusion.ai~1request-id",
        "/metadata/annotations/tensor-fusion.ai~1traceparent",
    }


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
def test_other_operations_are_left_alone(cluster, pod, operation):
    assert cluster.admit(pod(), operation=operation).patch == ()


_texts = st.one_of(st.text(max_size=40), st.sampled_from(["1", "16Gi", "true", "A100", "shared"]))
_cel = st.lists(
    st.sampled_from(
        [
            "device",
            ".attributes",
            '["model"]',
            "==",
            "&&",
            "(",
            ")",
            '"a"',
            "1",
            "!",
            "?",
            ":",
            "\n",
        ]
    ),
    max_size=12,
).map("".join)


@given(
    texts=st.dictionaries(st.sampled_from(POD_ANNOTATIONS), _texts, max_size=4),
    expression=st.one_of(st.none(), _cel),
)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_is_written_is_injected_or_denied_with_a_reason(
    new_cluster, pod, patched, texts, expression
):
    cluster = new_cluster()
    asked = pod({**texts, **({DRA_CEL_EXPRESSION: expression} if expression else {})})

    answer = cluster.admit(asked)

    if answer.allowed:
        assert cluster.admit(patched(asked, answer)).patch == ()
    else:
        assert answer.message.startswith('pod "train" can\'t get its GPUs: ')
    json.dumps(write_review("uid", answer)).encode()


@pytest.mark.parametrize(("count", "is_allowed"), [("1", True), ("2", False)])
def test_under_mps_a_container_gets_one_gpu(cluster, pod, count, is_allowed):
    cluster.pool("of-mps", template="on", enforcement=Enforcement(enforcer="mps"))
    asked = pod({P + "gpupool": "of-mps", P + "gpu-count": count})

    answer = cluster.admit(asked)

    assert answer.allowed is is_allowed
    assert is_allowed or "2 GPUs are asked for one container" in answer.message
