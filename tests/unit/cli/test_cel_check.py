"""``dray cel check``: accepted or refused, at what cost, and where the fault is."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.api.errors import InvalidInputError
from dray_cli.cel import cel

A = 'device.attributes["d.x"]'
DEAR = "[1, 2, 3].all(a, " * 12 + "true" + ")" * 12


def check(*arguments, stdin=""):
    """The outcome of a call."""
    return CliRunner().invoke(cel, ["check", *arguments], input=stdin)


def test_an_accepted_expression_shows_its_type_and_what_it_costs_on_a_device():
    found = check(f'{A}.model == "H100"')
    assert found.exit_code == 0
    assert found.stdout.splitlines() == [
        "ok in new objects of Kubernetes 1.36",
        "type  bool",
        "cost  at most 5 of 1,000,000 units per device, about 0.5 µs of kube-scheduler's time",
    ]


@pytest.mark.parametrize(("version", "known"), [("1.30", "1.34"), ("v1.99.2", "1.37")])
def test_an_unknown_version_is_reported_with_the_one_that_is_used(version, known):
    found = check("true", "--k8s", version)

    assert found.stdout.splitlines()[0] == (
        f"ok in new objects of Kubernetes {version}, taken for {known}, the nearest that dray knows"
    )


def test_an_attribute_alone_is_of_a_type_that_only_the_device_tells():
    assert "type  any" in check(f"{A}.ecc").stdout


def test_each_clause_has_its_type_and_its_share_of_the_cost():
    lines = check(f'{A}.ecc && {A}.model == "H100"').stdout.splitlines()
    assert [line.split(maxsplit=2) for line in lines[3:]] == [
        ["4", "any", f"{A}.ecc"],
        ["5", "bool", f'{A}.model == "H100"'],
    ]


def test_devices_show_what_is_really_used():
    slices = str(Path(__file__).parents[3] / "examples" / "02-selectors" / "slices.yaml")
    driver = 'device.attributes["tensor-fusion.ai.dra-driver"]'
    found = check(f'has({driver}.model) && {driver}.model == "A100"', "-f", slices)
    assert found.stdout.splitlines()[-1] == "used  3 to 8 units on 3 devices, 6.3 on average"


def test_a_refused_expression_shows_the_place_and_the_nearest_name():
    found = check(f"device.atributes.size() > 0 && {A}.x")
    assert (found.exit_code, found.stdout) == (1, "")
    lines = found.stderr.splitlines()
    assert "undefined field 'atributes'" in lines[0]
    assert "'attributes'" in lines[0]
    assert lines[2] == " | ......^"


def test_feature_gates_decide_and_only_those_that_change_the_language_are_taken():
    lists = f"{A}.names.exists(name, name == 'a')"
    assert check(lists).exit_code == 1
    assert check(lists, "--feature-gates", "DRAListTypeAttributes=true").exit_code == 0
    shared = "device.allowMultipleAllocations"
    assert check(shared).exit_code == 0
    assert check(shared, "--feature-gates", "DRAConsumableCapacity=false").exit_code == 1
    unknown = check(shared, "--feature-gates", "DRAAdminAccess=true")
    assert isinstance(unknown.exception, InvalidInputError)
    assert "DRAListTypeAttributes" in str(unknown.exception)
    assert check(shared, "--feature-gates", "DRAConsumableCapacity=yes").exit_code == 2


def test_the_minor_version_and_the_environment_decide():
    expression = "device.allowMultipleAllocations"
    assert check(expression).exit_code == 0
    assert check(expression, "--k8s", "1.34").exit_code == 1
    assert check(expression, "--k8s", "1.34", "--environment", "stored").exit_code == 0


def test_what_is_too_dear_for_a_new_object_may_stand_in_an_old_one():
    found = check(DEAR)
    assert found.exit_code == 1
    assert "too complex, exceeds cost limit" in found.stderr
    assert check(DEAR, "--environment", "stored").exit_code == 0


def test_what_is_too_long_is_not_even_tried():
    found = check("(" * 10_241)
    assert found.exit_code == 1
    assert "Too long" in found.stderr


def test_the_guide_s_dialect_is_refused_with_its_translation():
    found = check('device.attributes["model"] == "H100"')
    assert found.exit_code == 1
    assert found.stderr.splitlines()[-1].startswith("has(device.attributes[")


def test_programs_read_json():
    found = json.loads(check("-", "-o", "json", stdin="true").stdout)
    assert found == {
        "expression": "true",
        "k8s": "1.36",
        "environment": "new",
        "admission": "ok",
        "error": None,
        "type": "bool",
        "cost": 0,
        "costLimit": 1_000_000,
        "clauses": [],
        "costOnDevices": [],
    }
    refused = check("1 +", "-o", "json")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["admission"] == "compile-error"


@pytest.mark.parametrize("version", ["x", "2.0", "1"])
def test_a_version_that_is_none_is_named(version):
    assert isinstance(check("true", "--k8s", version).exception, InvalidInputError)
