"""``dray simulate openb`` from files to figures."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.api.errors import PermanentError
from dray_cli.__main__ import cli


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    nodes = [f"n{number},32000,65536,{2 + number % 3},T4" for number in range(8)]
    milli = (0, 1000, 500, 250, 100)
    pods = [
        f"p{number:03},{1000 * (1 + number % 4)},1024,{number % 5 and 1},{milli[number % 5]}"
        for number in range(60)
    ]
    (tmp_path / "nodes.csv").write_text("\n".join(["sn,cpu_milli,memory_mib,gpu,model", *nodes]))
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
    (tmp_path / "pods.csv").write_text("\n".join([head, *pods]))
    return ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]


def simulate(*arguments: str):
    return CliRunner().invoke(cli, ["simulate", "openb", *arguments])


def test_json_has_every_seed_and_their_mean_and_deviation(files):
    found = simulate(
        *files, "--policy", "fgd", "--policy", "random", "--seeds", "3-5", "-o", "json"
    )

    fgd, by_chance = json.loads(found.stdout)
    assert (fgd["policy"], by_chance["policy"]) == ("fgd", "random")
    assert (fgd["pods"], fgd["ties"]) == ("pods.csv", "name")
    assert [one["seed"] for one in fgd["seeds"]] == [3, 4, 5]
    for per_cent in ("90", "100", "130"):
        values = [one["alloc"][per_cent] for one in fgd["seeds"]]
        assert fgd["alloc"][per_cent]["mean"] == pytest.approx(sum(values) / 3, abs=0.001)
        assert fgd["alloc"][per_cent]["sd"] >= 0
    assert "6 of 6 runs" in found.stderr


def test_two_processes_find_what_one_finds(files):
    asked = (
        *files,
        "--policy",
        "bestfit",
        "--policy",
        "compact-first",
        "--seeds",
        "1,2",
        "-o",
        "json",
    )

    alone, together = simulate(*asked), simulate(*asked, "--jobs", "2")

    assert alone.stdout == together.stdout


def test_people_get_a_table(files):
    found = simulate(*files, "--policy", "fgd", "--seeds", "42")

    assert found.exit_code == 0
    last = found.stdout.splitlines()[-1].split()
    assert last[:2] == ["pods.csv", "fgd"]
    assert 50 < float(last[-1]) <= 100


@pytest.mark.parametrize("seeds", ["", "x", "5-3", "1-5000"])
def test_seeds_that_are_none_are_used_wrongly(files, seeds):
    found = simulate(*files, "--seeds", seeds)

    assert found.exit_code == 2
    assert "expected a number or a range such as 42-51" in found.stderr


def test_a_file_that_is_not_there_is_named(files):
    found = CliRunner().invoke(cli, ["simulate", "openb", *files[:3], "none.csv"])

    assert isinstance(found.exception, PermanentError)
    assert "none.csv can't be read" in str(found.exception)
