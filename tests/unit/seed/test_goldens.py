"""Every block of the seed, as copied to examples/seed, against its stored translation.

DRAY_REWRITE_GOLDENS=1 writes the stored files anew; read the difference before committing it.
"""

import os
import re
from pathlib import Path

import pytest

from dray.cel.errors import CelError
from dray.cel.evaluate import compile
from dray.seed.dialect import translate
from dray.seed.documents import convert

SEED = Path(__file__).parents[3] / "examples" / "seed"
GOLDEN = Path(__file__).parent / "golden"
YAML = sorted(SEED.glob("*.yaml"))
CEL = sorted(SEED.glob("*.cel"))


def _compare(name: str, text: str) -> None:
    stored = GOLDEN / name
    if os.environ.get("DRAY_REWRITE_GOLDENS"):
        stored.write_text(text)
    assert text == stored.read_text()


def _expressions(block: str) -> list[str]:
    """The expressions of a block: paragraphs, or single lines where a paragraph is none."""
    found = []
    for paragraph in re.split(r"\n\s*\n", block.strip()):
        try:
            translate(paragraph)
            found.append(paragraph)
        except CelError:
            lines = [line for line in paragraph.split("\n") if not line.startswith("//")]
            found += lines
    return found


def _translated(expression: str) -> str:
    try:
        translation = translate(expression)
    except CelError as error:
        return f"refused: {error}\n"
    notes = [f"changed: {change}\n" for change in translation.changes]
    notes += [f"warning: {warning}\n" for warning in translation.warnings]
    return f"{translation.expression}\n" + "".join(notes)


def test_all_blocks_of_the_seed_are_here():
    assert (len(YAML), len(CEL)) == (20, 14)


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.stem)
def test_documents_convert_to_the_stored_form(path: Path):
    conversion = convert(path.read_text())
    _compare(path.name, conversion.text)
    if conversion.notes:
        _compare(path.stem + ".notes", "".join(f"{note}\n" for note in conversion.notes))


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.stem)
def test_converting_twice_changes_nothing(path: Path):
    once = convert(path.read_text()).text
    twice = convert(once)
    assert twice.text == once
    assert twice.notes == ()


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.stem)
def test_only_documents_of_resource_k8s_io_change(path: Path):
    text = path.read_text()
    assert (convert(text).text == text) == ("resource.k8s.io" not in text)


@pytest.mark.parametrize("path", CEL, ids=lambda path: path.stem)
def test_expressions_translate_to_the_stored_form(path: Path):
    shown = [
        f"--- {expression}\n+++ {_translated(expression)}"
        for expression in _expressions(path.read_text())
    ]
    _compare(path.name, "".join(shown))


@pytest.mark.parametrize("path", CEL, ids=lambda path: path.stem)
def test_what_is_translated_compiles_and_stays_as_it_is(path: Path):
    for expression in _expressions(path.read_text()):
        try:
            translated = translate(expression).expression
        except CelError:
            continue
        compile(translated)
        assert translate(translated).expression == translated
        assert translate(translated).changes == ()
