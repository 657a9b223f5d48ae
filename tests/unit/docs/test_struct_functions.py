"""What mypy alone does not see: functions of dataclasses on msgspec Structs fail when run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = """
import dataclasses
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec


class Value(msgspec.Struct, frozen=True):
    number: int = 0


class Narrow(Value, frozen=True):
    more: int = 0


@dataclass(frozen=True)
class Plain:
    value: Value = Value()


V = TypeVar("V", bound=Value)


def wrong(one: Value, either: Narrow | None, any_of: V) -> None:
    replace(one, number=1)
    if either is not None:
        dataclasses.asdict(either)
    replace(any_of, number=2)
    dataclasses.fields(one)


def right(plain: Plain, one: Value) -> None:
    replace(plain, value=msgspec.structs.replace(one, number=1))
    dataclasses.asdict(plain)
"""


def test_functions_of_dataclasses_are_refused_on_structs_where_types_are_checked(
    tmp_path: Path,
) -> None:
    (tmp_path / "code.py").write_text(CODE)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    cache = ["--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, *cache, str(tmp_path / "code.py")], cwd=ROOT, capture_output=True, text=True
    )
    found = [line.partition(": error: ")[2] for line in done.stdout.splitlines()[:-1]]
    assert found == [
        "Value is a msgspec Struct: use msgspec.structs.replace  [misc]",
        "Narrow is a msgspec Struct: use msgspec.structs.asdict  [misc]",
        "Value is a msgspec Struct: use msgspec.structs.replace  [misc]",
        "Value is a msgspec Struct: use msgspec.structs.fields  [misc]",
    ], done.stdout + done.stderr
