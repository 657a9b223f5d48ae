"""``dray convert`` and ``dray cel translate`` as a person calls them."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.api.errors import InvalidInputError
from dray_cli.cel import cel
from dray_cli.convert import convert

GOLDEN = Path(__file__).parent / "golden" / "001"
A = 'device.attributes["tensor-fusion.ai.dra-driver"]'


def part(stored, title):
    """What comes in or out, in a stored conversion."""
    titles_and_parts = re.split(r"^=== (.*)\n", (GOLDEN / stored).read_text("utf-8"), flags=re.M)
    return dict(zip(titles_and_parts[1::2], titles_and_parts[2::2], strict=True))[title]


TEMPLATE = part("yaml-03-3.2.txt", "in")
CONVERTED = part("yaml-03-3.2.txt", "out")
SLICE = part("yaml-16-6.2.1.txt", "out")
APPENDIX = part("yaml-19-appendix.txt", "in")


@pytest.fixture
def template(tmp_path):
    path = tmp_path / "template.yaml"
    path.write_text(TEMPLATE)
    return path


@pytest.fixture
def devices(tmp_path):
    path = tmp_path / "slice.yaml"
    path.write_text(SLICE)
    return path


def run(command, *arguments, stdin=""):
    return CliRunner().invoke(command, [str(a) for a in arguments], input=stdin)


def test_convert_prints_what_kubectl_can_apply_and_explains_on_standard_error(template):
    quiet = run(convert, "-f", template)
    assert quiet.exit_code == 0
    assert quiet.stdout == CONVERTED
    assert quiet.stderr == ""
    explained = run(convert, "-f", template, "--explain")
    assert explained.stdout == quiet.stdout
    head, *changes = explained.stderr.splitlines()
    assert head == f"{template}: document 1, ResourceClaimTemplate/tensor-fusion-gpu-template"
    assert [change[:2] for change in changes] == ["  "] * 5
    assert "  apiVersion resource.k8s.io/v1beta2 → resource.k8s.io/v1: beta" in changes[0]


def test_warnings_are_always_printed():
    shown = run(convert, "-", stdin=SLICE.replace("name: node-01\n    gen", "name: gold\n    gen"))
    assert shown.stderr.splitlines() == [
        "<stdin>: document 1, ResourceSlice/tensor-fusion-resource-slice-node-01",
        "  warning: pool.name gold is not the node's: the slices of a pool must be complete "
        "together, so the pool should be the node",
    ]


def test_convert_reads_standard_input_and_several_files(template, devices):
    piped = run(convert, "-f", "-", stdin=TEMPLATE)
    assert piped.stdout == CONVERTED
    both = run(convert, "-f", template, "-f", devices)
    assert run(convert, template, devices).stdout == both.stdout
    assert both.stdout.count("---\n") == 1
    assert both.stdout.endswith(SLICE)


def test_convert_prints_json_one_object_or_a_list(template):
    one = json.loads(run(convert, "-f", template, "-o", "json").stdout)
    assert one["kind"] == "ResourceClaimTemplate"
    many = json.loads(run(convert, "-", "-o", "json", stdin=APPENDIX).stdout)
    assert [item["kind"] for item in many["items"]] == [
        "SchedulingConfigTemplate",
        "ResourceClaimTemplate",
        "GPUPool",
        "Pod",
    ]


def test_wrong_use_is_2_and_wrong_input_is_dray_s_error():
    assert run(convert).exit_code == 2
    assert run(convert, "-f", "/no/such/file").exit_code == 2
    assert isinstance(run(convert, "-f", "-", stdin="a: [").exception, InvalidInputError)
    assert isinstance(run(cel, "translate", "1 +").exception, InvalidInputError)


def test_translate_prints_the_expression_and_json_the_changes():
    seed = 'device.attributes["model"] == "A100"'
    expected = f'has({A}.model) && {A}.model == "A100"'
    assert run(cel, "translate", seed).stdout == expected + "\n"
    assert run(cel, "translate", "-", stdin=seed).stdout == expected + "\n"
    found = json.loads(run(cel, "translate", seed, "-o", "json").stdout)
    assert found["expression"] == expected
    assert len(found["changes"]) == 2
    assert "must not match" in run(cel, "translate", seed, "--explain").stderr


def test_translate_takes_a_whole_block_of_the_guide():
    shown = run(cel, "translate", "-", stdin=part("cel-01-5.4.1.txt", "in"))
    assert shown.stdout == part("cel-01-5.4.1.txt", "out")
    assert "no condition" in shown.stderr
