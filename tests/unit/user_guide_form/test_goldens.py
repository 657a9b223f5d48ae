"""Every block of the user guide's texts in examples/seed, against its stored conversion.

One stored file per block: the block, the object that it stands in where it is only a part of
one, what comes out, and why. DRAY_REWRITE_GOLDENS=1 writes the files again; read the difference
before committing it.
"""

import os
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dray.cel.errors import CelError
from dray.cel.eval.program import compile
from dray.user_guide_form.blocks import expressions, translate_block
from dray.user_guide_form.documents import convert

TEXTS = Path(__file__).parents[3] / "examples" / "seed"
GOLDEN = Path(__file__).parent / "golden"
GUIDES = ("000", "001")
"""The user guide in Chinese and in English."""
ARTICLES = ("002", "003", "004")
"""Their manifests mostly stand without a fence."""
FENCE = re.compile(r"^[ \t]*```(\w*)\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (\d+(?:\.\d+)*)?", re.MULTILINE)
MANIFEST = re.compile(r"^apiVersion:.*?(?=^\s*$|^```|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One YAML or CEL block, or a manifest of an article."""

    seed: str
    kind: str
    number: int
    """From 1 among the blocks of its kind, in the order of the text."""
    section: str
    text: str

    @property
    def stored(self) -> Path:
        section = f"-{self.section}" if self.section else ""
        return GOLDEN / self.seed / f"{self.kind}-{self.number:02}{section}.txt"

    @property
    def id(self) -> str:
        return f"{self.seed}-{self.stored.stem}"


def text_of(seed: str) -> str:
    (path,) = TEXTS.glob(f"{seed}-*.txt")
    return path.read_text("utf-8")


def blocks_of(seed: str) -> Iterator[Block]:
    text = text_of(seed)
    numbers = {"yaml": 0, "cel": 0}
    for kind, start, content in _fenced(text) if seed in GUIDES else _manifests(text):
        numbers[kind] += 1
        yield Block(seed, kind, numbers[kind], _section(text[:start]), content)


def _fenced(text: str) -> Iterator[tuple[str, int, str]]:
    for match in FENCE.finditer(text):
        if match[1] in ("yaml", "cel"):
            yield match[1], match.start(), match[2]


def _manifests(text: str) -> Iterator[tuple[str, int, str]]:
    for match in MANIFEST.finditer(text):
        yield "yaml", match.start(), match[0]


def _section(before: str) -> str:
    """The number of the section, such as 5.4.2, in which the text ends."""
    section = ""
    for marks, number in HEADING.findall(FENCE.sub("", before)):
        section = number or ("appendix" if len(marks) == 2 else section)
    return section


BLOCKS = [block for seed in (*GUIDES, *ARTICLES) for block in blocks_of(seed)]
YAML = [block for block in BLOCKS if block.kind == "yaml"]
CEL = [block for block in BLOCKS if block.kind == "cel"]
every_yaml = pytest.mark.parametrize("block", YAML, ids=lambda block: block.id)
every_cel = pytest.mark.parametrize("block", CEL, ids=lambda block: block.id)


@pytest.mark.parametrize("seed", GUIDES)
def test_no_block_of_the_guides_is_forgotten(seed: str) -> None:
    text = text_of(seed)
    assert (text.count("```yaml\n"), text.count("```cel\n")) == (20, 14)
    assert len([block for block in YAML if block.seed == seed]) == 20
    assert len([block for block in CEL if block.seed == seed]) == 14


@pytest.mark.parametrize("seed", ARTICLES)
def test_no_manifest_of_the_articles_is_forgotten(seed: str) -> None:
    rest = text_of(seed)
    for block in blocks_of(seed):
        rest = rest.replace(block.text, "")
    assert not re.search(r"^\s*(apiVersion|kind):", rest, re.MULTILINE)
    assert all(not found.strip() for found in re.findall(r"^```yaml\n(.*?)^```", rest, re.M | re.S))


def test_every_stored_file_belongs_to_a_block() -> None:
    assert sorted(GOLDEN.rglob("*.*")) == sorted(block.stored for block in BLOCKS)


# A part of an object stands in the smallest whole one.

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: fragment{number}
{annotations}spec:
  containers:
    - name: app
      image: example.com/app:1
"""
TEMPLATE = """\
apiVersion: resource.k8s.io/v1beta2
kind: ResourceClaimTemplate
{metadata}  name: fragment
spec:
  spec:
    devices:
      requests:
        - name: gpu-request
          exactly:
            count: 1
"""


def within(block: Block) -> str:
    """The block, or the whole object around what is a part."""
    if block.text.startswith("annotations:"):
        return "---\n".join(_pods(block.text))
    if block.text.startswith("metadata:"):
        return TEMPLATE.format(metadata=block.text)
    # An article leaves the metadata of its node out.
    return re.sub(r"^\.\.\.\n", "metadata:\n  name: fragment\n", block.text, flags=re.MULTILINE)


def _pods(text: str) -> Iterator[str]:
    """One pod; for a key that stands twice ("or explicitly …"), one for each of its values."""
    head, *paragraphs = re.split(r"(?<=:)\n|\n\n", text)
    keys = re.findall(r"^  ([\w./-]+):", text, re.MULTILINE)
    bodies = paragraphs if len(set(keys)) < len(keys) else ["\n\n".join(paragraphs)]
    for number, body in enumerate(bodies, start=1):
        annotations = textwrap.indent(f"{head}\n{body.rstrip()}\n", "  ")
        yield POD.format(number=number if len(bodies) > 1 else "", annotations=annotations)


def _compare(block: Block, parts: dict[str, str]) -> None:
    shown = "".join(f"=== {title}\n{text}" for title, text in parts.items() if text)
    if os.environ.get("DRAY_REWRITE_GOLDENS"):
        block.stored.parent.mkdir(parents=True, exist_ok=True)
        block.stored.write_text(shown, "utf-8")
    assert shown == block.stored.read_text("utf-8")


@every_yaml
def test_objects_convert_to_the_stored_form(block: Block) -> None:
    whole = within(block)
    conversion = convert(whole)
    parts = {
        "in": block.text,
        "within": whole if whole != block.text else "",
        "out": conversion.text,
        "why": "".join(f"{note}\n" for note in conversion.notes),
    }
    _compare(block, parts)


@every_yaml
def test_converting_twice_changes_nothing(block: Block) -> None:
    once = convert(within(block)).text
    twice = convert(once)
    assert twice.text == once
    assert twice.notes == ()


@every_yaml
def test_what_kubernetes_accepts_already_does_not_change(block: Block) -> None:
    whole = within(block)
    is_user_guide_form = "resource.k8s.io/" in whole or "kind: Node" in whole
    assert (convert(whole).text != whole) == is_user_guide_form


@every_cel
def test_expressions_translate_to_the_stored_form(block: Block) -> None:
    parts = {"in": block.text, **_translated(block.text)}
    pieces = [block.text[start:end] for start, end in expressions(block.text)]
    if "refused" in parts and len(pieces) > 1:
        for number, piece in enumerate(pieces, start=1):
            parts[f"in, {number} of {len(pieces)}"] = f"{piece}\n"
            found = _translated(piece + "\n").items()
            parts |= {f"{title}, {number} of {len(pieces)}": text for title, text in found}
    _compare(block, parts)


def _translated(text: str) -> dict[str, str]:
    try:
        translation = translate_block(text)
    except CelError as error:
        return {"refused": f"{error}\n"}
    why = [*translation.changes, *(f"warning: {warning}" for warning in translation.warnings)]
    return {"out": translation.expression, "why": "".join(f"{line}\n" for line in why)}


@every_cel
def test_what_is_translated_compiles_and_stays_as_it_is(block: Block) -> None:
    for start, end in expressions(block.text):
        try:
            translated = translate_block(block.text[start:end])
        except CelError:
            continue
        again = translate_block(translated.expression)
        assert again.expression == translated.expression
        assert again.changes == ()
        if not any("no condition" in warning for warning in translated.warnings):
            compile(translated.expression)
