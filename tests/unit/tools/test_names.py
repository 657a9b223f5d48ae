"""The rules for names of classes and modules, and the shrinking list of their exceptions."""

from pathlib import Path

import pytest

from tools.names import __main__ as program
from tools.names.rules import ROOT, problems, read_exceptions, violations


def write(root: Path, modules: dict[str, str]) -> None:
    """Modules of the shared library: their texts by their paths."""
    for name, text in modules.items():
        path = root / "shared" / "dray" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_product_follows_the_rules_and_no_exception_is_left_over() -> None:
    assert problems(ROOT, read_exceptions()) == []


def test_a_class_name_that_exists_twice_is_reported(tmp_path: Path) -> None:
    write(tmp_path, {"nodes": "class Table: ...", "cards": "class Outer:\n    class Table: ..."})

    assert problems(tmp_path, {}) == [
        "class Table is defined more than once: dray.cards, dray.nodes"
    ]


def test_generated_code_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"api_pb2": "class Device: ...", "device": "class Device: ..."})

    assert problems(tmp_path, {}) == []


@pytest.mark.parametrize("name", ["told", "given_up", "on_own", "deciding", "claims_seen"])
def test_a_module_named_by_a_verb_form_or_pronoun_is_reported(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: ""})

    assert [one.name for one in violations(tmp_path)] == [f"dray.{name}"]


@pytest.mark.parametrize("name", ["tracing", "cached_objects", "scheduling_queue", "node_table"])
def test_nouns_of_the_field_and_adjectives_before_a_noun_are_right(
    tmp_path: Path, name: str
) -> None:
    write(tmp_path, {name: ""})

    assert violations(tmp_path) == []


def test_a_package_is_named_like_a_module(tmp_path: Path) -> None:
    write(tmp_path, {"leading/__init__": "", "leading/lease": ""})

    assert [one.name for one in violations(tmp_path)] == ["dray.leading"]


def test_an_exception_hides_one_violation_of_its_rule(tmp_path: Path) -> None:
    write(tmp_path, {"told": ""})

    assert problems(tmp_path, {"module": ["dray.told"]}) == []


def test_an_exception_that_no_longer_applies_is_reported(tmp_path: Path) -> None:
    write(tmp_path, {"devices": "class Table: ..."})

    assert problems(tmp_path, {"class": ["Table"], "module": ["dray.told"]}) == [
        "exceptions.toml: class Table follows the rule now: remove the entry",
        "exceptions.toml: module dray.told follows the rule now: remove the entry",
    ]


def test_the_command_fails_with_each_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "ROOT", tmp_path)
    monkeypatch.setattr(program, "read_exceptions", dict)
    write(tmp_path, {"devices": "class Table: ..."})
    assert program.main() == 0

    write(tmp_path, {"told": ""})
    assert program.main() == 1
    assert "module dray.told is named by 'told'" in capsys.readouterr().err
