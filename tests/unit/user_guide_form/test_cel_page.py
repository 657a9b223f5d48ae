"""docs/cel.md: every example of the page, run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.api.names import DRIVER
from dray.cel.admission import admission
from dray.cel.environment import MINORS, Environment, Mode, environment
from dray.cel.errors import CelCompileError
from dray.user_guide_form.dialect import translate
from dray.user_guide_form.rewriter import UserGuideDialectError
from dray.user_guide_form.selector import generated_selector
from dray.user_guide_form.vocabulary import ATTRIBUTES, CAPACITIES
from dray_cli.__main__ import cli

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "cel.md").read_text("utf-8")
CODE = re.compile(r"`([^`]+)`")
A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'


def section(heading: str) -> str:
    """What stands below a heading, up to the next of its level or above."""
    marks = heading.split(" ")[0]
    (_, _, rest) = PAGE.partition(f"\n{heading}\n")
    assert rest, heading
    return re.split(rf"^#{{1,{len(marks)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def tables(text: str) -> Iterator[list[list[str]]]:
    """The rows of each table, but for its head; cells without their code marks."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        yield [[cell(part) for part in line.split(" | ")] for line in table.splitlines()[2:]]


def cell(text: str) -> str:
    return text.strip().strip("|").strip().strip("`").replace("\\|", "|")


def rows(heading: str, number: int = 0) -> list[list[str]]:
    return list(tables(section(heading)))[number]


def widened(text: str) -> str:
    """Without the page's abbreviations."""
    return re.sub(r"\b([AC])\.", lambda found: f"{A if found[1] == 'A' else C}.", text)


@pytest.mark.parametrize("row", rows("## Both dialects side by side"), ids=lambda row: row[0])
def test_the_dialects_stand_side_by_side(row: list[str]) -> None:
    guide, kubernetes, _ = row
    assert translate(guide).expression == widened(kubernetes)
    assert translate(widened(kubernetes)).changes == ()
    for minor in MINORS:
        assert admission(widened(kubernetes), Environment(minor, Mode.NEW)).verdict == "ok"


def test_all_names_of_the_guide_are_listed() -> None:
    listed = CODE.findall(section("### Names of the guide's dialect").partition("In Kubernetes")[0])
    assert listed == [*ATTRIBUTES, *CAPACITIES]


def test_what_stands_in_an_annotation_stays_in_its_string() -> None:
    written, quoted = re.findall(r"the model\n`(.*)` becomes `(.*)`, a model", PAGE)[0]
    assert f"{A}.model == {quoted} &&" in generated_selector(model=written)


@pytest.mark.parametrize("row", rows("## What is refused, and why", 0), ids=lambda row: row[0])
def test_the_guides_dialect_is_refused_with_the_reason(row: list[str]) -> None:
    with pytest.raises(UserGuideDialectError) as caught:
        translate(row[0])
    assert row[1] in str(caught.value)


@pytest.mark.parametrize("row", rows("## What is refused, and why", 1), ids=lambda row: row[0])
def test_kubernetes_dialect_is_refused_in_the_words_of_kubernetes(row: list[str]) -> None:
    found = admission(row[0], Environment(mode=Mode.NEW))
    assert found.verdict == "compile-error"
    assert row[1] in found.text
    with pytest.raises(CelCompileError):
        translate(row[0])


@pytest.mark.parametrize("row", rows("## Versions of Kubernetes"), ids=lambda row: row[0])
def test_versions_differ_as_the_page_says(row: list[str]) -> None:
    expression, *verdicts = row
    for minor, expected in zip(MINORS, verdicts, strict=True):
        for mode in Mode:
            found = admission(expression, environment(f"1.{minor}", mode))
            is_stored = mode is Mode.STORED
            is_taken = found.verdict == "ok" or (is_stored and found.verdict == "too-complex")
            assert is_taken == (expected == "yes" or (expected == "stored" and is_stored)), (
                minor,
                mode,
            )


CONSOLE = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    (command, output)
    for block in CONSOLE
    for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]


@pytest.mark.parametrize(("command", "output"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_commands_print_what_the_page_shows(
    command: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    program, *words = shlex.split(command)
    assert program == "dray"
    result = CliRunner().invoke(cli, words)
    shown = result.output or f"{result.exception}\n"
    assert shown == output
