"""Versions and gates: what is on, and that each named difference is documented."""

import re
from pathlib import Path

import pytest

from dray.api.errors import InvalidInputError
from dray_allocator.devices.versions import KNOWN, SchedulerVersion, scheduler_version

PAGE = Path(__file__).parents[4] / "docs" / "kubernetes-differences.md"
FEATURES = {
    "admin_access",
    "consumable_capacity",
    "device_binding",
    "device_taints",
    "fractional_range",
    "list_attributes",
    "partitionable",
    "prioritized_list",
}
NO_DIFFERENCE = FEATURES | {"language", "is_simple"}
PROPERTIES = {name for name, value in vars(SchedulerVersion).items() if isinstance(value, property)}


def test_every_named_difference_is_documented_and_the_other_way_round():
    rows = re.findall(r"^\| `(\w+)`", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) - {"fractional_range"} == PROPERTIES - NO_DIFFERENCE


@pytest.mark.parametrize(
    ("version", "on"),
    [
        ("1.34", {"admin_access", "prioritized_list"}),
        ("1.35", {"admin_access", "prioritized_list"}),
        ("1.36", FEATURES - {"fractional_range", "list_attributes"}),
        ("1.37", FEATURES - {"list_attributes"}),
    ],
)
def test_gates_that_are_not_named_are_as_the_version_has_them(version, on):
    scheduler = scheduler_version(version)
    assert {name for name in FEATURES if getattr(scheduler, name)} == on


def test_binding_conditions_need_both_gates():
    both = ["DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"]
    assert scheduler_version("1.36", both).device_binding
    assert scheduler_version("1.36", ["+".join(both)]).device_binding
    assert not any(scheduler_version("1.36", [gate]).device_binding for gate in both)


def test_a_version_that_is_not_known_is_taken_for_the_nearest():
    assert scheduler_version("1.20").minor == 34
    assert scheduler_version("v1.99.1").minor == 37
    with pytest.raises(InvalidInputError, match="is not a version of Kubernetes"):
        scheduler_version("latest")


@pytest.mark.parametrize("name", ["DRADerivedAttributes", "draadminaccess", ""])
def test_a_feature_that_dray_does_not_decide_by_is_refused(name):
    with pytest.raises(InvalidInputError, match="does not affect what dray decides"):
        scheduler_version("1.37", [*KNOWN, name])


def test_sharing_and_binding_bring_another_allocator():
    assert scheduler_version("1.36", ["DRAAdminAccess", "DRADeviceTaints"]).is_simple
    assert not scheduler_version("1.36").is_simple
    # There a gate that changes nothing else does.
    assert not scheduler_version("1.34").is_simple
    assert scheduler_version("1.35").is_simple
