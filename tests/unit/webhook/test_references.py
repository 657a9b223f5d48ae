"""References to claims that a pod has before dray adds its own."""

import msgspec
import pytest

CLAIM = "tensor-fusion-gpu-claim"
BASE = "tensor-fusion-gpu-template"


def test_a_pod_that_refers_to_the_base_template_is_rewritten(cluster, pod, patched):
    asked = pod(
        resourceClaims=[
            {"name": "nic", "resourceClaimName": "nic"},
            {"name": "gpu", "resourceClaimTemplateName": BASE},
        ],
        containers=[
            {"name": "a", "resources": {"claims": [{"name": "gpu"}, {"name": "nic"}]}},
            {"name": "sidecar"},
        ],
    )

    spec = patched(asked, answer := cluster.admit(asked))["spec"]

    assert spec["resourceClaims"] == [
        {"name": "nic", "resourceClaimName": "nic"},
        {"name": CLAIM, "resourceClaimTemplateName": answer.requested.template},
    ]
    assert spec["containers"][0]["resources"]["claims"] == [{"name": CLAIM}, {"name": "nic"}]
    assert "resources" not in spec["containers"][1]


def test_a_claim_that_no_container_names_goes_to_all(cluster, pod, patched):
    asked = pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": BASE}])

    spec = patched(asked, cluster.admit(asked))["spec"]

    assert spec["containers"][0]["resources"]["claims"] == [{"name": CLAIM}]


def test_two_references_to_the_base_template_are_denied(cluster):
    message = cluster.errors(
        resourceClaims=[
            {"name": "a", "resourceClaimTemplateName": BASE},
            {"name": "b", "resourceClaimTemplateName": BASE},
        ]
    )

    assert 'spec.resourceClaims "a", "b" all refer to the base template' in message


@pytest.mark.parametrize("template", ["other-base", "other-base-0123456789"])
def test_another_base_template_than_the_pools_is_denied(cluster, template_of, template):
    base = template_of("team-a")
    cluster.view.apply(msgspec.structs.replace(base, name="other-base"))

    message = cluster.errors(
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template}]
    )

    assert (
        'spec.resourceClaims "gpu" refers to the base template "other-base", but the pool takes '
        f'"{BASE}", and the pod would get two claims' in message
    )


def test_a_base_template_of_another_namespace_is_not_this_pods(cluster, pod, template_of):
    base = template_of("team-b")
    cluster.view.apply(msgspec.structs.replace(base, name="nic"))

    assert cluster.admit(
        pod(resourceClaims=[{"name": "nic", "resourceClaimTemplateName": "nic"}])
    ).allowed


def test_a_foreign_claim_of_our_name_is_denied(cluster):
    message = cluster.errors(resourceClaims=[{"name": CLAIM, "resourceClaimName": "mine"}])

    assert "rename yours" in message
