"""The two rules: a class name stands for one class, and a module is not named by a verb form.

The names that do not follow them yet are listed in ``exceptions.toml``. The list only shrinks: an
entry that no longer applies is reported, too.
"""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
EXCEPTIONS: Final = Path(__file__).with_name("exceptions.toml")
SOURCES: Final = (
    "shared",
    "services/webhook",
    "services/claim-controller",
    "services/allocator",
    "services/node-agent",
    "cli",
    "sandbox",
    "tools",
)
"""Folders of the product, each the root of one or more packages; the rules hold below them."""
_GENERATED: Final = "_pb2"
_ENDINGS: Final = ("ing", "ed")
_DENIED: Final = frozenset((
    "about", "again", "all", "anew", "any", "anything", "apart", "ask", "asks", "begun", "by",
    "choose", "chosen", "done", "each", "elsewhere", "every", "everything", "find", "found",
    "given", "going", "gone", "held", "it", "known", "knows", "look", "looks", "made", "meant",
    "own", "said", "see", "seen", "sense", "shown", "sold", "some", "something", "sought",
    "stuck", "taken", "takes", "that", "their", "them", "these", "they", "this", "told", "thought",
    "understood", "voids", "way", "what", "when", "where", "which", "who", "whoever", "whom",
    "whose", "why", "withdraw", "written",
))  # fmt: skip
"""Verb forms without such an ending, pronouns, adverbs, prepositions; wrong anywhere in a name."""
_ALLOWED: Final = frozenset((
    "binding", "formatting", "generated", "logging", "recording", "routing", "scheduling",
    "scoring", "sharing", "signing", "string", "tracing", "weighted",
))  # fmt: skip
"""Words with such an ending that may end a name: nouns of the field, and ``generated`` code."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A name that breaks a rule."""

    rule: str
    """``class`` or ``module``."""
    name: str
    """The class's name, or the module's dotted name."""
    text: str


def violations(root: Path) -> list[Violation]:
    """Every name in the product below ``root`` that breaks a rule, exceptions included."""
    modules = dict(modules_of(root))
    return [*_repeated_classes(modules), *_verb_forms(modules)]


def problems(root: Path, exceptions: Mapping[str, list[str]]) -> list[str]:
    """Violations that are not exceptions, and exceptions that no longer apply, one line each."""
    found = violations(root)
    broken = {(one.rule, one.name) for one in found}
    excepted = {(rule, name) for rule, names in exceptions.items() for name in names}
    return [
        *(one.text for one in found if (one.rule, one.name) not in excepted),
        *(
            f"{EXCEPTIONS.name}: {rule} {name} follows the rule now: remove the entry"
            for rule, name in sorted(excepted - broken)
        ),
    ]


def read_exceptions(path: Path = EXCEPTIONS) -> dict[str, list[str]]:
    """The names that are known to break a rule, by rule."""
    return tomllib.loads(path.read_text("utf-8"))


def modules_of(root: Path) -> Iterator[tuple[str, Path]]:
    """The modules of the product and of ``tools``, without generated code."""
    for source in SOURCES:
        folder = root / source
        base = root if source == "tools" else folder
        for path in sorted(folder.rglob("*.py")):
            if _GENERATED not in path.name:
                parts = path.relative_to(base).with_suffix("").parts
                yield ".".join(part for part in parts if part != "__init__"), path


def _repeated_classes(modules: Mapping[str, Path]) -> Iterator[Violation]:
    places = defaultdict[str, list[str]](list)
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    for name, found in sorted(places.items()):
        if len(found) > 1:
            where = ", ".join(found)
            yield Violation("class", name, f"class {name} is defined more than once: {where}")


def _verb_forms(modules: Mapping[str, Path]) -> Iterator[Violation]:
    for module in modules:
        word = _verb_form(module.rpartition(".")[2].split("_"))
        if word:
            text = f"module {module} is named by {word!r}: use a term of the field or a noun"
            yield Violation("module", module, text)


def _verb_form(words: list[str]) -> str:
    """The word that makes a name wrong, or "": an adjective before a noun is allowed."""
    for word in words:
        if word in _DENIED:
            return word
    last = words[-1]
    return last if last.endswith(_ENDINGS) and last not in _ALLOWED else ""
