"""``dray allocate --batch``: Kubernetes' recorded answers line by line, whatever the lines are."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dray.api.quantities import parse_quantity
from dray_cli.__main__ import cli
from dray_cli.allocate_batch import answers

VECTORS = Path(__file__).parents[2] / "vectors"
SAMPLES = [
    json.loads(line)
    for name in ("alloc-sample.jsonl", "alloc-counters.jsonl")
    for line in (VECTORS / name).read_text("utf-8").splitlines()
]
ASKED = ("id", "k8s", "features", "node", "slices", "classes", "allocated", "claims")
EMPTY: dict[str, Any] = {"id": "e", "node": {"metadata": {"name": "n"}}, "claims": []}
SLICE = {"metadata": {"name": "s"}, "spec": {"driver": "d.x", "pool": {"name": "p"}}}


def asked(sample: dict[str, Any]) -> dict[str, Any]:
    """The question of a recorded answer."""
    return {key: sample[key] for key in ASKED}


def ask(*lines: bytes | str | dict[str, Any]) -> list[dict[str, Any]]:
    """The answers to some lines."""
    written = [json.dumps(line) if isinstance(line, dict) else line for line in lines]
    return list(answers([w.encode() if isinstance(w, str) else w for w in written]))


def run(*arguments: str, stdin: str = "") -> Result:
    """The verb, run."""
    return CliRunner().invoke(
        cli, ["allocate", "--batch", "--mode", "compatible", *arguments], input=stdin
    )


def comparable(allocation: dict[str, Any]) -> dict[str, Any]:
    """Share ids are random upstream; quantities count by value."""
    written: dict[str, Any] = json.loads(json.dumps(allocation))
    for result in written["devices"]["results"]:
        if "shareID" in result:
            result["shareID"] = "<share>"
        consumed = result.get("consumedCapacity", {})
        for name, amount in consumed.items():
            consumed[name] = parse_quantity(amount).nano
    return written


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["id"])
def test_every_recorded_answer_of_kubernetes_is_ours(sample: dict[str, Any]) -> None:
    (found,) = ask(asked(sample))
    expected = sample["expect"]
    assert found["id"] == sample["id"]
    assert (found["error"] is not None) == ("error" in expected), found["error"]
    allocations = expected.get("allocations")
    if allocations is None:
        assert found["allocations"] is None
    else:
        assert [comparable(one) for one in found["allocations"]] == [
            comparable(one) for one in allocations
        ]


@pytest.mark.parametrize(
    ("line", "expected_text"),
    [
        (b"{", "line 1: no JSON"),
        (b"\xff\xfe", "line 1: no JSON"),
        (b"[1]", "line 1: expected a JSON object"),
        ({"id": 7}, "node can't be read"),
        (EMPTY | {"k8s": "two"}, "'two' is not a version of Kubernetes"),
        (
            EMPTY | {"features": ["DRAMagic"]},
            "feature 'DRAMagic' does not affect what dray decides",
        ),
        (EMPTY | {"slices": {}}, "slices is dict, expected a list"),
        (
            EMPTY | {"slices": [{"spec": {}}]},
            "slices[0] can't be read: ",
        ),
        (
            EMPTY | {"slices": [{"spec": SLICE["spec"] | {"devices": [3]}}]},
            "slices[0] can't be read",
        ),
        (EMPTY | {"claims": [{"spec": 1}]}, "claims[0] can't be read"),
    ],
)
def test_a_bad_line_is_answered_with_what_is_wrong_with_it(line: Any, expected_text: str) -> None:
    refused, good = ask(line, EMPTY)
    assert expected_text in refused["error"]
    assert refused["allocations"] is None
    assert good == {"id": "e", "allocations": [], "error": None}


def test_an_amount_that_is_not_a_quantity_is_named_with_its_place() -> None:
    device = {"name": "a", "capacity": {"memory": {"value": "80GiB"}}}
    (found,) = ask(EMPTY | {"slices": [SLICE | {"spec": SLICE["spec"] | {"devices": [device]}}]})
    assert "slices[0] can't be read: device a: memory '80GiB' is not a quantity" in found["error"]


def test_lines_come_from_standard_input_or_a_file_and_keep_their_order() -> None:
    lines = [json.dumps(asked(sample)) for sample in SAMPLES[:5]]
    from_stdin = run(stdin="\n".join(["", lines[0], "", *lines[1:]]))
    from_file = run("-f", str(VECTORS / "alloc-sample.jsonl"))
    found = [json.loads(line)["id"] for line in from_stdin.output.splitlines()]
    assert found == [sample["id"] for sample in SAMPLES[:5]]
    assert from_file.output.startswith(from_stdin.output)
    assert (from_stdin.exit_code, from_file.exit_code) == (0, 0)


def test_text_output_is_in_words() -> None:
    reported = run("-f", str(VECTORS / "alloc-sample.jsonl"), "--output", "text").output
    assert "a77-000000: does not fit\n" in reported
    assert "a77-000001: fits\n    claim 0: r0 gets gpu.example.com/pool-b/gpu-2\n" in reported
    assert "a77-000016: error: claim default/claim-0: selector #0 on device " in reported
    assert "r0 gets gpu.example.com/pool-b/dev-0 (cores 2, memory 20Gi)" in reported


@pytest.mark.parametrize(
    "arguments",
    [
        ["allocate"],
        ["allocate", "--batch"],
        ["allocate", "--batch", "--mode", "compatible", "--output", "yaml"],
        ["allocate", "--batch", "--mode", "compatible", "-f", "no-such-file.jsonl"],
    ],
)
def test_wrong_use_ends_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli, arguments).exit_code == 2


def test_the_same_question_has_the_same_answer_share_ids_included() -> None:
    shared = next(sample for sample in SAMPLES if "allocated share" in sample["tags"])
    assert ask(asked(shared)) == ask(asked(shared))
