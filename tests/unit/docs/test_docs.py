"""What the documents name exists: links, files, modules, commands, annotations, decisions."""

import importlib
import re
import shlex
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import click
import pytest

from dray.api.names import OWN_ANNOTATIONS, POD_ANNOTATIONS
from dray_cli.__main__ import VERBS, cli

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "services").glob("*/README.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "tests").rglob("*.md"),
    ]
)
ADRS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
SECTIONS = ["## Context", "## Decision", "## Rejected", "## Consequences"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FOLDERS = "benchmarks|cli|deploy|docs|examples|sandbox|services|shared|tests|tools"
IN_REPOSITORY = re.compile(rf"(?:{FOLDERS})/[\w./-]+")
TABLE_FOLDER = re.compile(
    r"^\| what \| where in `([\w./-]+)` \|\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE
)
"""A table of files below one folder."""
PACKAGES = "dray|dray_allocator|dray_claim_controller|dray_cli|dray_node_agent|dray_sandbox"
MODULE = re.compile(rf"(?:{PACKAGES}|dray_webhook)(?:\.\w+)+")
MADE_BY_THE_READER = ".jsonl.gz"
"""Ending of files that an example line makes, and that are not in the repository."""
SUBJECT = re.compile(r"dray\.(?:state|evt|cmd|rpc|input|decision|dead|lease)\b.*")
MAKE = re.compile(r"make ([a-z]+(?:-[a-z]+)*)")
RUN_AS_MODULE = re.compile(r"python -m ([\w.]+)")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Git hosts make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def exists(dotted: str) -> bool:
    """Whether the name is a module, or an attribute reached from one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name, None)
        return found is not None
    return False


def commands(page: Path) -> Iterator[list[str]]:
    """Every ``dray …`` of the page's console blocks, pipes and comments cut off."""
    for language, block in FENCE.findall(page.read_text("utf-8")):
        lines = re.findall(r"^\$ (.+)$", block, re.MULTILINE) if language == "console" else []
        for line in lines:
            words = shlex.split(line, comments=True)
            while "|" in words:
                cut = words.index("|")
                yield from [words[1:cut]] if words[0] == "dray" else []
                words = words[cut + 1 :]
            yield from [words[1:]] if words[0] == "dray" else []


def parse(words: list[str]) -> None:
    """Take a command line as the program would. Raises click.UsageError."""
    context = cli.make_context("dray", list(words))
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, command, arguments = context.command.resolve_command(context, rest)
        assert name is not None
        assert command is not None, words
        context = command.make_context(name, arguments, parent=context)
    context.close()


def test_what_is_checked_is_found() -> None:
    """The patterns below find what pages name; one that finds nothing would check nothing."""
    text = "".join(prose(page) for page in PAGES)
    codes = CODE.findall(text)
    assert len(LINK.findall(text)) > 50
    assert sum(1 for code in codes if IN_REPOSITORY.fullmatch(code)) > 50
    assert sum(1 for code in codes if MODULE.fullmatch(code)) > 5
    assert sum(1 for page in PAGES for _ in commands(page)) > 10


@every_page
def test_no_merge_is_unfinished(page: Path) -> None:
    assert not re.findall(r"^(?:<{7}|>{7}) .*$", page.read_text("utf-8"), re.MULTILINE)


@every_page
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" in link:
            continue
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@every_page
def test_files_and_modules_that_are_named_exist(page: Path) -> None:
    for code in CODE.findall(prose(page)):
        if IN_REPOSITORY.fullmatch(code):
            assert (ROOT / code).exists(), code
        if MODULE.fullmatch(code) and not SUBJECT.fullmatch(code):
            assert exists(code), code


def test_files_in_a_table_exist_below_its_folder() -> None:
    tables = TABLE_FOLDER.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    named = [(ROOT / folder, code) for folder, rows in tables for code in CODE.findall(rows)]
    files = [(folder, code) for folder, code in named if code.endswith(".py")]
    assert len(tables) == 2
    assert [
        code for folder, code in files if not ((folder / code).is_file() or (ROOT / code).is_file())
    ] == []


@every_page
def test_make_targets_and_modules_to_run_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    named = {found[1] for code in CODE.findall(text) if (found := MAKE.match(code))}
    named |= set(re.findall(r"^\$ make ([a-z0-9-]+)", text, re.MULTILINE))
    assert named <= targets
    for module in RUN_AS_MODULE.findall(text):
        assert exists(module) or (ROOT / f"{module.replace('.', '/')}.py").exists(), module


@every_page
def test_commands_are_used_rightly(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line takes them: verbs, options and arguments."""
    monkeypatch.chdir(ROOT)
    for words in commands(page):
        is_made = any(word.endswith(MADE_BY_THE_READER) for word in words)
        with suppress(click.BadParameter) if is_made else nullcontext():
            parse(words)


def test_every_verb_is_explained() -> None:
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    assert [verb for verb in VERBS if f"`dray {verb}`" not in pages] == []


def test_every_annotation_has_a_row() -> None:
    page = (ROOT / "docs" / "user-guide" / "annotations.md").read_text("utf-8")
    names = (*POD_ANNOTATIONS, *OWN_ANNOTATIONS)
    assert [name for name in names if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("page", ADRS, ids=lambda p: p.stem)
def test_a_decision_record_has_its_sections_and_is_listed(page: Path) -> None:
    text = page.read_text("utf-8")
    assert re.findall(r"^## .+$", text, re.MULTILINE) == SECTIONS
    assert re.search(r"^Status: \w+", text, re.MULTILINE)
    assert text.startswith(f"# {int(page.name[:4])}. ")
    assert f"({page.name})" in (ROOT / "docs" / "adr" / "README.md").read_text("utf-8")


def test_decision_records_are_numbered_without_gaps() -> None:
    assert [int(page.name[:4]) for page in ADRS] == list(range(1, len(ADRS) + 1))
