"""Every module of the product is reached from a program of it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.sizes import ROOT
from tools.unused_modules import unreached, unused_modules

NO_IMPORTS: Mapping[str, set[str]] = {}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Modules, whose texts a test may write."""
    names = ("a", "a.__main__", "a.ports", "a.memory", "a.b", "a.b.__main__", "a.script", "a.c")
    found = {name: tmp_path / f"{name.rpartition('.')[2]}.py" for name in names}
    for name in ("a", "a.b"):
        found[name] = tmp_path / name / "__init__.py"
        found[name].parent.mkdir()
    found["a.b.__main__"] = tmp_path / "a.b" / "__main__.py"
    for path in found.values():
        path.touch()
    return found


def missed(files: dict[str, Path], imports: Mapping[str, set[str]] = NO_IMPORTS) -> set[str]:
    """The modules that the program ``a`` does not reach."""
    return set(unreached(["a"], {name: imports.get(name, set()) for name in files}, files))


def test_the_product_has_no_module_that_no_program_of_it_reaches() -> None:
    assert unused_modules(ROOT) == []


def test_a_module_that_only_an_unused_one_imports_is_unused(files: dict[str, Path]) -> None:
    assert missed(files, {"a.script": {"a.c"}}) >= {"a.script", "a.c"}
    assert missed(files, {"a.__main__": {"a.script"}, "a.script": {"a.c"}}) == {
        "a.ports", "a.memory", "a.b", "a.b.__main__",
    }  # fmt: skip


def test_a_module_that_is_run_by_its_name_or_its_file_is_used(files: dict[str, Path]) -> None:
    files["a.__main__"].write_text("ARGV = ('-m', 'a.b'); FILE = 'script.py'")

    assert missed(files) == {"a.ports", "a.memory", "a.c"}


def test_an_in_memory_adapter_is_used_with_its_port(files: dict[str, Path]) -> None:
    assert not {"a.ports", "a.memory"} & missed(files, {"a.__main__": {"a.ports"}})
