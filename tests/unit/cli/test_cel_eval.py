"""``dray cel eval``: devices of a file or of a cluster, by dray's evaluator or by celpy."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.api.errors import InvalidInputError
from dray.kube.memory import MemoryKube
from dray.kube.ports import SLICES
from dray_cli import cel_slices
from dray_cli.cel import cel

FILE = str(Path(__file__).parents[3] / "examples" / "02-selectors" / "slices.yaml")
A = 'device.attributes["tensor-fusion.ai.dra-driver"]'
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "d.x",
        "pool": {"name": "node-9", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-9",
        "devices": [{"name": "gpu-0", "attributes": {"count": {"int": 2}}}],
    },
}


def evaluate(*arguments, stdin=""):
    """The outcome of a call."""
    return CliRunner().invoke(cel, ["eval", *arguments], input=stdin)


def test_the_table_names_the_failing_clause_and_the_value_that_it_read():
    expression = f'has({A}.model) && {A}.model == "A100" && {A}.qos == "high"'
    found = evaluate(expression, "-f", FILE)
    lines = found.stdout.splitlines()
    assert found.exit_code == 0
    assert lines[0].split() == ["DEVICE", "RESULT", "WHY"]
    assert lines[1].split() == ["node-1/gpu-0", "match"]
    assert lines[2] == "node-1/gpu-1  no match  qos == \"high\"   (qos is 'low')"
    assert lines[3].endswith("(model is absent)")
    assert max(map(len, lines)) <= 80
    assert lines[4] == "1 of 3 devices match"


def test_attributes_of_another_domain_than_the_drivers_keep_it(tmp_path):
    slices = tmp_path / "slices.yaml"
    text = Path(FILE).read_text().replace("tensor-fusion.ai.dra-driver", "gpu.other.com")
    slices.write_text(text)
    lines = evaluate(
        f'has({A}.model) && {A}.model == "A100"', "-f", str(slices)
    ).stdout.splitlines()
    assert f"{A}.model" in lines[1]


def test_an_error_is_shown_for_the_device_that_has_it():
    lines = evaluate(f'{A}.model == "A100"', "-f", FILE).stdout.splitlines()
    assert lines[3].split(maxsplit=2) == ["node-2/gpu-0", "error", "no such key: model"]


def test_explained_clauses_stand_below_their_device():
    lines = evaluate(f'{A}.qos == "high"', "-f", FILE, "--explain").stdout.splitlines()
    assert lines[2] == "    true   qos == \"high\"  (read 'high')"


def test_programs_read_json_with_the_cost_of_each_device():
    rows = json.loads(evaluate("true", "-f", FILE, "-o", "json").stdout)
    assert [(row["device"], row["result"], row["cost"]) for row in rows] == [
        ("node-1/gpu-0", "match", 0),
        ("node-1/gpu-1", "match", 0),
        ("node-2/gpu-0", "match", 0),
    ]


def test_the_language_is_that_of_a_stored_expression_of_the_version():
    expression = f'{A}.qos.includes("high")'
    assert "match" in evaluate(expression, "-f", FILE).stdout
    assert "includes" in str(evaluate(expression, "-f", FILE, "--k8s", "1.34").exception)


def test_celpy_gives_a_second_opinion_on_the_standard_language():
    found = evaluate(f'{A}.qos == "high"', "-f", FILE, "--engine", "celpy")
    assert found.stdout.splitlines()[-1] == "2 of 3 devices match"
    lacking = evaluate('semver("1.0.0").major() == 1', "-f", FILE, "--engine", "celpy")
    assert "error     celpy: " in lacking.stdout


def test_celpy_s_syntax_errors_say_whose_they_are():
    found = evaluate(f"{A}.?model.hasValue()", "-f", FILE, "--engine", "celpy")
    assert isinstance(found.exception, InvalidInputError)
    assert "celpy can't read" in str(found.exception)


def test_the_devices_of_a_cluster_are_asked(monkeypatch):
    async def connect(flag):
        assert flag is None
        kube = MemoryKube()
        await kube.create(SLICES, SLICE)
        return kube

    monkeypatch.setattr(cel_slices, "connect_kube", connect)
    found = evaluate('device.attributes["d.x"].count == 2', "--cluster")
    assert found.stdout.splitlines()[1].split() == ["node-9/gpu-0", "match"]


def test_a_list_on_standard_input_is_read_and_other_kinds_are_passed_over():
    listed = {"kind": "List", "items": [{"kind": "Pod", "spec": {}}, SLICE]}
    found = evaluate("true", "-f", "-", stdin=json.dumps(listed))
    assert found.stdout.splitlines()[-1] == "1 of 1 devices match"


@pytest.mark.parametrize("text", ["kind: Pod", "{}", "kind: ResourceSlice", ""])
def test_input_without_slices_is_refused(text):
    found = evaluate("true", "-f", "-", stdin=text)
    assert isinstance(found.exception, InvalidInputError)
    assert "ResourceSlice" in str(found.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["true"],
        ["true", "-f", FILE, "--cluster"],
        ["-f", FILE],
        ["true", "--batch"],
        ["--batch", "--cluster"],
        ["true", "-f", "/no/such/file"],
        ["true", "-f", FILE, "--engine", "other"],
    ],
    ids=" ".join,
)
def test_wrong_use_ends_with_2(arguments):
    assert evaluate(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"attributes": {"a": {"int": "3"}}}, "attribute a: int is str, expected int"),
        ({"attributes": {"a": {"int": True}}}, "attribute a: int is bool, expected int"),
        ({"attributes": {"a": {"version": 1.0}}}, "attribute a: version is float, expected str"),
        ({"attributes": {"a": {"ints": 3}}}, "attribute a: ints is int, expected a list"),
        ({"attributes": {"a": {"strings": ["x", 1]}}}, "attribute a: string is int, expected str"),
        ({"attributes": {"a": 5}}, "device.attributes: a is int, expected an object"),
        ({"capacity": [1]}, "device.capacity is list, expected an object"),
    ],
    ids=str,
)
def test_a_device_that_no_server_keeps_is_refused_and_named(device, expected):
    slices = {**SLICE, "spec": {**SLICE["spec"], "devices": [{"name": "bad", **device}]}}
    with pytest.raises(InvalidInputError, match=re.escape(f"device node-9/bad: {expected}")):
        evaluated_or_raised(slices)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"kind": "List", "items": 5}, "items of the input is int, expected a list"),
        ({"kind": "ResourceSlice", "spec": {"devices": {}, "pool": "p"}}, "spec.pool is str"),
        ({"kind": "ResourceSlice", "spec": {"devices": {"a": 1}}}, "devices of the input is dict"),
        ({"kind": "ResourceSlice", "spec": {"devices": [5]}}, "a device of the input is int"),
    ],
    ids=str,
)
def test_documents_of_another_form_are_refused(document, expected):
    with pytest.raises(InvalidInputError, match=expected):
        evaluated_or_raised(document)


def evaluated_or_raised(document):
    """Evaluate on the devices of one document."""
    CliRunner().invoke(
        cel, ["eval", "true", "-f", "-"], input=json.dumps(document), catch_exceptions=False
    )


def test_a_file_that_is_not_text_is_refused_at_its_byte(tmp_path):
    binary = tmp_path / "slices.yaml"
    binary.write_bytes(b"ab\xff\xfe")
    with pytest.raises(InvalidInputError, match="0xff at offset 2 is not UTF-8"):
        CliRunner().invoke(cel, ["eval", "true", "-f", str(binary)], catch_exceptions=False)
