"""Words that this project used in a sense of its own, and plain words have replaced.

A package, folder or page is listed in ``CLEAN`` once none of them is left in its code, comments,
docstrings and texts. Identifiers are split at underscores and capitals.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORDS = (
    "seed 00", "seed §", "withdrawn from lately", "that dray serves in pool",
    "told", "said", "whoever", "anew", "ill", "beside", "sold twice", "lane", "lanes", "board",
    "boards", "keeper", "keepers", "door", "doors", "believer", "believers", "has a say",
)  # fmt: skip
CLEAN = (
    "cli",
    "shared",
    "tools",
    "services",
    "deploy",
    "docs",
    "examples",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "sandbox",
    "tests",
    "benchmarks",
    ".ci",
    "Makefile",
    "mkdocs.yml",
    "pyproject.toml",
)
ALLOWED = {
    "CHANGELOG.md": ("board",),  # a name that was replaced
    "services/claim-controller/dray_claim_controller/facts/build.py": ("beside",),  # of the wire
    **dict.fromkeys(  # a field of the wire
        (
            "docs/adr/0026-replicas-read-what-they-decide-upon.md",
            "docs/messages.md",
            "services/allocator/dray_allocator/state/subscriptions.py",
            "shared/dray/messages/facts.py",
            "tests/unit/allocator/test_subscriptions.py",
            "tests/unit/claim_controller/test_outbox.py",
            "tests/unit/claim_controller/test_pool_dependencies.py",
            "tests/unit/claim_controller/test_reduced.py",
        ),
        ("beside",),
    ),
    **dict.fromkeys(  # a setting
        (
            "deploy/compose/compose.yaml",
            "deploy/helm/dray/templates/node-agent.yaml",
            "docs/user-guide/settings.md",
            "services/node-agent/README.md",
            "services/node-agent/dray_node_agent/app.py",
            "services/node-agent/dray_node_agent/settings.py",
            "tests/integration/node_agent/conftest.py",
            "tests/nvml_shim/building.py",
            "tests/integration/node_agent/test_surfaces.py",
            "sandbox/dray_sandbox/services.py",
        ),
        ("board",),
    ),
    "tests/contract/kubernetes/admission/test_policies.py": ("said",),  # a string in CEL
    "tests/unit/docs/test_plain_words.py": WORDS,
    "tests/unit/tools/test_names.py": ("told",),  # what tools.names refuses
    "tools/names/rules.py": ("told", "said", "whoever", "anew"),  # what it refuses
}
_FOUND = re.compile(rf"(?<![a-z])({'|'.join(WORDS)})(?![a-z])")
_TEXTS = (".py", ".md", ".yaml", ".yml", ".toml", ".tpl", ".conf", "")


def words_in(text: str) -> set[str]:
    """Those of ``WORDS`` that stand in a text."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    return {match[1] for match in _FOUND.finditer(" ".join(split.split()))}


def files_of(name: str) -> list[Path]:
    path = ROOT / name
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [file for file in files if file.is_file() and file.suffix in _TEXTS]


@pytest.mark.parametrize("folder", CLEAN)
def test_a_clean_package_has_none_of_the_words(folder: str) -> None:
    files = files_of(folder)
    found = {str(path.relative_to(ROOT)): words_in(path.read_text("utf-8")) for path in files}

    assert found
    assert {
        name: sorted(words - set(ALLOWED.get(name, ())))
        for name, words in found.items()
        if words - set(ALLOWED.get(name, ()))
    } == {}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_is_there(name: str) -> None:
    assert words_in((ROOT / name).read_text("utf-8")) >= set(ALLOWED[name])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("class DomainKeeper: ...", {"keeper"}),
        ("told_apart = 1", {"told"}),
        ("devices that were sold\n    twice", {"sold twice"}),
        ("fell ill", {"ill"}),
        ("the boards", {"boards"}),
        ("still, besides, keyboard, planet, outdoor, resold twice over", set()),
    ],
)
def test_words_are_found_in_identifiers_and_across_lines(text: str, found: set[str]) -> None:
    assert words_in(text) == found
