"""Claims of other device classes, which could be given dray's cards."""

import pytest

from dray_webhook.decisions.claims import concerns_dray, validate_claim
from dray_webhook.decisions.foreign_requests import names_another_driver

P = "tensor-fusion.ai/"
ANY = "device.capacity['nic.dev'].memory.isGreaterThan(quantity('1Gi'))"
TOLERATES = [{"operator": "Exists"}]


@pytest.fixture
def validated(cluster, request_of):
    """The answer to a claim of class "any" with these tolerations and selectors."""

    def validate(tolerations=None, selectors=(), kind="ResourceClaim"):
        exactly = {"deviceClassName": "any"}
        if tolerations:
            exactly["tolerations"] = tolerations
        if selectors:
            exactly["selectors"] = [{"cel": {"expression": one}} for one in selectors]
        spec = {"devices": {"requests": [{"name": "card", "exactly": exactly}]}}
        obj = {
            "kind": kind,
            "metadata": {"name": "mine"},
            "spec": spec if kind == "ResourceClaim" else {"spec": spec},
        }
        review = request_of(obj, kind={"group": "resource.k8s.io", "kind": kind})
        return validate_claim(review, cluster.view)

    return validate


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize("toleration", [TOLERATES[0], {"key": P + "owner", "value": "dray"}])
def test_a_class_that_takes_any_device_may_not_tolerate_the_owner_taint(
    cluster, validated, kind, toleration
):
    cluster.device_class("any", ANY)

    answer = validated([toleration], kind=kind)

    assert not answer.allowed
    assert f'{kind} "mine": request "card" of class "any" tolerates {{' in answer.message
    assert f"covers the device taint {P}owner=dray" in answer.message
    assert "device.driver ==" in answer.message


def test_without_that_toleration_the_taint_is_enough(cluster, validated):
    cluster.device_class("any", ANY)

    assert validated().allowed
    assert validated([{"key": "nic.dev/sick", "operator": "Exists"}]).allowed


def test_whose_driver_is_another_may_tolerate_everything(cluster, validated):
    cluster.device_class("any", ANY)
    assert validated(TOLERATES, ["device.driver == 'nic.dev'"]).allowed

    cluster.device_class("any", f"device.driver == 'nic.dev' && {ANY}")
    assert validated(TOLERATES).allowed


def test_a_class_that_dray_has_not_seen_yet_is_not_an_excuse(validated):
    answer = validated(TOLERATES)

    assert not answer.allowed
    assert "not known to dray yet (try again)" in answer.message


def test_where_taints_are_dropped_such_claims_are_denied(cluster, validated):
    cluster.device_class("any", ANY)
    cluster.server(device_taints=False)

    answer = validated()

    assert not answer.allowed
    assert "drops device taints (DRADeviceTaints is off)" in answer.message
    assert 'ResourceClaim "mine", request "card"' in answer.message
    assert validated(selectors=["'nic.dev' == device.driver"]).allowed
    for name in list(cluster.view.pools):
        cluster.pool(name, owner="kube-scheduler")
    assert validated().allowed


@pytest.mark.parametrize(
    ("expression", "another"),
    [
        ('device.driver == "nic.dev"', True),
        ('"nic.dev" == device.driver', True),
        ('true && (device.driver == "nic.dev" && false)', True),
        ('device.driver == "tensor-fusion.ai.dra-driver"', False),
        ('device.driver != "nic.dev"', False),
        ('device.driver == "nic.dev" || true', False),
        ('!(device.driver == "nic.dev")', False),
        ("device.driver == device.driver", False),
        ("device.driver ==", False),
        ("true", False),
    ],
)
def test_only_what_surely_names_another_driver_counts(expression, another):
    assert names_another_driver(expression) == another


@pytest.mark.parametrize(
    ("entry", "concerns"),
    [
        ({"deviceClassName": "nic"}, False),
        ({"deviceClassName": "nic", "tolerations": TOLERATES}, True),
        ({"deviceClassName": "tensor-fusion.ai.dra-driver"}, True),
    ],
)
def test_other_drivers_users_wait_for_nobody(request_of, entry, concerns):
    spec = {"devices": {"requests": [{"name": "a", "firstAvailable": [{"name": "b", **entry}]}]}}
    obj = {"kind": "ResourceClaim", "metadata": {"name": "mine"}, "spec": spec}

    assert concerns_dray(request_of(obj, kind={"kind": "ResourceClaim"})) == concerns
