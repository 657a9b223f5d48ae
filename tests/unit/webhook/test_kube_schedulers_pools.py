"""Pods of pools whose devices kube-scheduler allocates."""

import pytest

from dray.messages.rpc import Lookup, LookupReply

P = "tensor-fusion.ai/"
OWNED = {P + "gpupool": "theirs"}
GATE = {"name": P + "allocation"}


@pytest.fixture
def theirs(cluster):
    cluster.pool("theirs", owner="kube-scheduler")
    return cluster


def test_the_pod_refers_to_its_claim_and_waits_for_nobody_but_kube_scheduler(theirs, pod, patched):
    asked = pod(OWNED)

    answer = theirs.admit(asked)
    spec = patched(asked, answer)["spec"]

    (reference,) = spec["resourceClaims"]
    assert reference["resourceClaimTemplateName"] == answer.requested.template
    assert spec["schedulerName"] == "default-scheduler"
    assert "schedulingGates" not in spec
    assert "tolerations" not in spec
    assert answer.requested.understood["allocator"] == "kube-scheduler"
    assert answer.requested.understood["binder"] == "kube-scheduler"


def test_a_gate_of_drays_that_somebody_wrote_is_removed_and_no_other(theirs, pod, patched):
    asked = pod(OWNED, schedulingGates=[GATE, {"name": "x/y"}])

    assert patched(asked, theirs.admit(asked))["spec"]["schedulingGates"] == [{"name": "x/y"}]


def test_the_shape_is_that_of_a_pool_of_drays(theirs, pod, patched):
    one = patched(pod(OWNED), theirs.admit(pod(OWNED)))
    theirs.pool("theirs", owner="dray")
    other = patched(pod(OWNED), theirs.admit(pod(OWNED)))

    shapes = [made["metadata"]["annotations"][P + "shape"] for made in (one, other)]
    assert shapes[0] == shapes[1]


def test_on_dedicated_nodes_the_pod_tolerates_their_taint(theirs, pod, patched):
    theirs.pool("theirs", dedicated=True)
    asked = pod(OWNED)

    spec = patched(asked, theirs.admit(asked))["spec"]

    assert spec["schedulerName"] == "default-scheduler"
    assert [entry["key"] for entry in spec["tolerations"]] == [P + "dedicated"]


def test_needs_that_dray_does_not_read_are_none_of_its_business(theirs, pod, patched):
    asked = pod(OWNED, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}])

    assert "schedulingGates" not in patched(asked, theirs.admit(asked))["spec"]


def test_shared_nodes_work_where_device_taints_are_dropped(theirs, pod):
    theirs.server(version="v1.34.4", device_taints=False, consumable_capacity=False)

    answer = theirs.admit(pod(OWNED))

    assert answer.allowed
    assert any("takes whole cards" in warning for warning in answer.warnings)


def test_drays_scheduler_is_refused_there(theirs):
    message = theirs.errors(OWNED, schedulerName="tensor-fusion-scheduler")

    assert 'spec.schedulerName is "tensor-fusion-scheduler", but GPUPool "theirs"' in message
    assert "leave spec.schedulerName out, or name a pool that dray owns" in message


def test_without_dra_it_is_refused_there(theirs):
    message = theirs.errors({**OWNED, P + "dra-enabled": "false"})

    assert "which gives GPUs only to claims: leave the annotation out" in message


def test_where_nobody_allocates_its_pods_are_refused(theirs):
    theirs.server(version="v1.36.3", allocating_scheduler=False)

    message = theirs.errors(OWNED)

    assert "the scheduler of this cluster allocates no devices" in message
    assert "set spec.owner: dray on this one" in message


def test_a_refusal_is_looked_up_because_the_owner_may_have_changed(theirs, pod):
    asked = pod(OWNED, schedulerName="tensor-fusion-scheduler")
    denied = theirs.admit(asked)
    lookup = Lookup(kind="pool", name="theirs")
    assert denied.unresolved == (lookup,)

    theirs.pool("theirs", owner="dray")
    looked_up = {lookup: LookupReply(pool=theirs.view.pools["theirs"])}
    theirs.pool("theirs", owner="kube-scheduler")
    theirs.view = theirs.view.with_answers(looked_up)
    assert theirs.admit(asked).allowed
