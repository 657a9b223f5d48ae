"""Which language which server speaks, for new and for stored expressions."""

import pytest

from dray.cel.check.static_check import check_selector
from dray.cel.environment import DEFAULT, Environment, Mode, environment
from dray.cel.errors import CelCompileError
from dray.cel.syntax.parser import parse


def accepts(text, env):
    try:
        check_selector(parse(text, env), text, env)
    except CelCompileError:
        return False
    return True


def test_the_default_is_what_the_allocator_of_1_36_evaluates():
    assert environment("1.36") == DEFAULT == Environment(36, Mode.STORED)


@pytest.mark.parametrize(
    ("version", "minor"), [("1.34", 34), ("v1.36.3", 36), ("1.30", 34), ("1.40", 37)]
)
def test_versions_beyond_the_known_ones_are_taken_for_the_nearest(version, minor):
    assert environment(version).minor == minor


@pytest.mark.parametrize("version", ["", "36", "2.0", "1.x", "latest"])
def test_what_is_not_a_version_is_refused(version):
    with pytest.raises(ValueError, match="not a version of Kubernetes"):
        environment(version)


SHARED = "device.allowMultipleAllocations"
RANGE = "lists.range(3).size() == 3"
INCLUDES = 'device.attributes["x"].y.includes("z")'
LOOP = 'device.attributes["x"].y.exists(v, v == 1)'
ESCAPED = 'device.attributes["x"].`y-z` == 1'
EVERYWHERE = {(v, m) for v in ("1.34", "1.35", "1.36", "1.37") for m in ("new", "stored")}
ACCEPTED = {
    SHARED: EVERYWHERE - {("1.34", "new"), ("1.35", "new")},
    RANGE: EVERYWHERE - {("1.34", "new")},
    INCLUDES: {("1.36", "stored"), ("1.37", "stored")},
    LOOP: {("1.37", "stored")},
    "dyn(true)": {("1.37", "stored")},
    ESCAPED: {("1.37", "stored"), ("1.37", "new")},
}


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36", "1.37"])
@pytest.mark.parametrize("mode", ["new", "stored"])
@pytest.mark.parametrize("text", ACCEPTED)
def test_what_a_server_knows_depends_on_its_version_and_on_what_it_is_asked(text, version, mode):
    assert accepts(text, environment(version, mode)) is ((version, mode) in ACCEPTED[text])


def test_gates_open_what_they_guard_for_new_expressions():
    assert accepts(SHARED, environment("1.34", "new", consumable_capacity=True))
    assert not accepts(SHARED, environment("1.36", "new", consumable_capacity=False))
    lists = environment("1.36", "new", list_attributes=True)
    assert accepts(INCLUDES, lists)
    assert accepts(LOOP, lists)
    assert accepts("dyn(true)", lists)


def test_a_leading_dot_passes_over_local_variables_only_in_newer_versions():
    text = '[1].all(device, .device.driver == "a")'
    assert accepts(text, environment("1.37"))
    assert not accepts(text, environment("1.36"))
