"""Workloads: warnings of pods that would be refused."""

import pytest

from dray_webhook.decisions.dispatch import decide

P = "tensor-fusion.ai/"


def template_of(pod):
    return {"metadata": {"annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}


def spec_of(kind, template):
    if kind == "CronJob":
        return {"jobTemplate": {"spec": {"template": template}}}
    return {"template": template}


@pytest.fixture
def warnings_of(cluster, request_of):
    """The answer to a workload with that pod template, which is never a denial."""

    def ask(pod, kind="Deployment"):
        workload = {"metadata": {"name": "web"}, "spec": spec_of(kind, template_of(pod))}
        about = {"kind": {"group": "apps", "version": "v1", "kind": kind}}
        request = request_of(workload, **about)
        answer = decide("validate-workloads", request, cluster.view, cluster.rules, cluster.ids)
        assert answer.allowed
        assert answer.patch == ()
        assert answer.requested is None
        return answer

    return ask


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_wrong_annotations_of_a_template_are_a_warning(warnings_of, pod, kind):
    head, error = warnings_of(pod({P + "qos": "best"}), kind).warnings
    assert head == f'{kind} "web": its pods would be refused'
    assert error.startswith(f'annotation {P}qos is "best"')


def test_every_error_is_a_line(warnings_of, pod):
    wrong = pod({P + "qos": "best", P + "gpu-count": "many"})
    _, *errors = warnings_of(wrong).warnings
    assert [error.partition(" ")[0] for error in errors] == ["1.", "2."]


def test_right_annotations_are_not_warnings(warnings_of, pod):
    assert warnings_of(pod()).warnings == ()


def test_an_annotation_without_effect_is_named_as_on_a_pod(warnings_of, cluster, pod):
    unknown = pod({P + "gpu-cuont": "2"})
    assert warnings_of(unknown).warnings == cluster.admit(unknown).warnings != ()


def test_a_pool_that_may_exist_is_looked_up_first(warnings_of, pod):
    answer = warnings_of(pod({P + "gpupool": "late"}))
    assert [(one.kind, one.name) for one in answer.unresolved] == [("pool", "late")]


def test_pods_without_annotations_are_not_dray_s(warnings_of, pod):
    plain = {"metadata": {"annotations": {}}, "spec": pod()["spec"]}
    assert warnings_of(plain).warnings == ()
