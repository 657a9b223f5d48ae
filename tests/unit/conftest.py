"""How tests import scripts, which are not packages."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType

import pytest

Import = Callable[[str], ModuleType]


@pytest.fixture(scope="session")
def importing_from() -> Callable[[Path], AbstractContextManager[Import]]:
    """Imports modules of a folder that is not a package; what was imported is forgotten after."""
    return _importing_from


@contextmanager
def _importing_from(folder: Path) -> Iterator[Import]:
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module
    finally:
        for name in set(sys.modules) - before:
            if _lies_in(folder, sys.modules[name]):
                del sys.modules[name]
        sys.path.remove(str(folder))


def _lies_in(folder: Path, module: ModuleType) -> bool:
    """Whether it is a file of the folder; a folder without `__init__.py` has but paths."""
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    return any(Path(place).is_relative_to(folder) for place in places)
