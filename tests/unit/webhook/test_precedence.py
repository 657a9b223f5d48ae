"""Annotation over the pool's SchedulingConfigTemplate over off."""

import msgspec
import pytest

from dray.api.pods import Policy
from dray.messages.facts import PolicyObserved, PoolObserved
from dray.messages.rpc import Lookup, LookupReply
from dray_webhook.decisions.view import DEFAULT_POOL

P = "tensor-fusion.ai/"


@pytest.mark.parametrize(
    ("annotation", "pool", "on"),
    [
        ("true", "shared", "annotation"),
        ("true", "without-dra", "annotation"),
        ("true", "without-policy", "annotation"),
        (None, "shared", "SchedulingConfigTemplate on"),
        (None, "without-dra", ""),
        (None, "without-policy", ""),
        ("false", "shared", ""),
        ("false", "without-dra", ""),
        ("false", "without-policy", ""),
    ],
)
def test_dra_is_on_by_annotation_then_policy_then_not(cluster, pod, annotation, pool, on):
    answer = cluster.admit(pod({P + "dra-enabled": annotation, P + "gpupool": pool}))

    assert answer.allowed == bool(on)
    if on:
        assert answer.requested.understood["dra"] == on
    else:
        assert "no other way to give a pod GPUs" in answer.message


def test_the_default_pool_is_written_onto_the_pod(cluster, pod, patched):
    cluster.pool("shared", default=True)
    asked = pod({P + "gpupool": None})

    answer = cluster.admit(asked)

    assert patched(asked, answer)["metadata"]["annotations"][P + "gpupool"] == "shared"
    assert answer.requested.understood["pool"] == "shared (default)"


def test_no_default_pool_is_denied_with_the_pools_there_are(cluster, pod):
    answer = cluster.admit(pod({P + "gpupool": None}))

    assert f"annotation {P}gpupool is missing, and no GPUPool is marked" in answer.message
    assert '"dedicated", "shared", "without-dra"' in answer.message
    assert answer.unresolved == (DEFAULT_POOL,)


def test_two_default_pools_are_denied_by_name(cluster):
    cluster.pool("shared", default=True)
    cluster.pool("dedicated", default=True)

    message = cluster.errors({P + "gpupool": None})

    assert '"dedicated", "shared" are all marked spec.default: true' in message


def test_an_unknown_pool_is_denied_and_looked_up(cluster, pod):
    answer = cluster.admit(pod({P + "gpupool": "nowhere"}))

    assert f'annotation {P}gpupool is "nowhere": there is no such GPUPool' in answer.message
    assert '"shared"' in answer.message
    assert answer.unresolved == (Lookup(kind="pool", name="nowhere"),)


def test_a_pool_that_names_an_absent_policy_is_denied(cluster, pod):
    cluster.pool("shared", template="gone")

    answer = cluster.admit(pod())

    assert 'SchedulingConfigTemplate "gone", which does not exist' in answer.message
    assert Lookup(kind="policy", name="gone") in answer.unresolved


def test_only_allowed_namespaces_are_admitted(cluster, pod):
    cluster.pool("shared", allowed_namespaces=("team-b", "team-c"))

    assert 'of namespace "team-a": expected one of: "team-b", "team-c"' in cluster.errors()

    cluster.pool("shared", allowed_namespaces=("team-a",))
    assert cluster.admit(pod()).allowed


def test_a_pool_that_is_being_deleted_admits_no_pod(cluster, pod):
    known = cluster.view.pools["shared"]
    ending = msgspec.structs.replace(known, deleting=True)
    cluster.view.apply(PoolObserved(revision=2, pool=ending))

    assert 'GPUPool "shared" is being deleted' in cluster.errors({})


def test_the_base_template_of_the_pods_namespace_comes_first(cluster, pod, template_of):
    cluster.view.apply(template_of("team-a"))

    answer = cluster.admit(pod())

    assert answer.requested.understood["base"] == "team-a/tensor-fusion-gpu-template"


def test_the_policy_names_the_base_template(cluster, pod):
    policy = Policy(name="on", uid="1", dra_enabled=True, claim_template="special")
    cluster.view.apply(PolicyObserved(revision=2, policy=policy))

    answer = cluster.admit(pod())

    assert 'no ResourceClaimTemplate "special" in namespace "team-a" or "dray-system"' in (
        answer.message
    )
    assert answer.unresolved == (
        Lookup(kind="template", name="special", namespace="team-a"),
        Lookup(kind="template", name="special", namespace="dray-system"),
    )


@pytest.mark.parametrize(
    ("labels", "seen"),
    [({}, "it has no such label"), ({P + "resource-claim-template": "yes"}, 'it has "yes"')],
)
def test_a_base_template_without_its_label_is_denied(cluster, template_of, labels, seen):
    unmarked = template_of("team-a")
    unmarked.labels.clear()
    unmarked.labels.update(labels)
    cluster.view.apply(unmarked)

    message = cluster.errors()

    assert f'expected label {P}resource-claim-template: "true", {seen}' in message


def test_a_name_too_long_for_a_label_is_denied(cluster):
    policy = Policy(name="on", uid="1", dra_enabled=True, claim_template="a" * 64)
    cluster.view.apply(PolicyObserved(revision=2, policy=policy))

    assert "has a name of 64 characters: expected 63 at most" in cluster.errors()


def test_a_doubt_that_was_looked_up_is_final(cluster, pod):
    asked = pod({P + "gpupool": "nowhere"})
    first = cluster.admit(asked)
    cluster.view = cluster.view.with_answers({first.unresolved[0]: LookupReply()})

    answer = cluster.admit(asked)

    assert (answer.allowed, answer.unresolved, answer.code) == (False, (), 400)


def test_a_look_up_without_answer_is_reported(cluster, pod):
    asked = pod({P + "gpupool": "nowhere"})
    first = cluster.admit(asked)
    late = LookupReply(error="the claim-controller did not answer in 300 ms")
    cluster.view = cluster.view.with_answers({first.unresolved[0]: late})

    answer = cluster.admit(asked)

    assert "(dray could not make sure: the claim-controller did not answer in 300 ms" in (
        answer.message
    )
    assert answer.code == 503


def test_a_long_list_of_pools_is_cut(cluster):
    for number in range(30):
        cluster.pool(f"pool-{number:02}")

    message = cluster.errors({P + "gpupool": "nowhere"})

    assert '"dedicated", "pool-00"' in message
    assert message.endswith(" and 14 more")
