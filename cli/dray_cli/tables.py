"""Tables: with colour and bars on a terminal, plain and stable in a pipe.

On a terminal, rich fits tables into the width, and uses no colour if ``NO_COLOR`` is set. In a
pipe, columns are two spaces apart, as in kubectl's tables, and nothing is cut.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

_BAR_WIDTH = 4
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table."""

    text: str
    style: str = ""
    """A style of rich, such as ``red``; only terminals show it."""
    bar: float | None = None
    """A bar before the text on a terminal, from 0 to 1."""


Row = Sequence[Cell | str]


def fill_cell(fraction: float, text: str) -> Cell:
    """A cell that shows how full something is: green, yellow or red, with a bar."""
    style = "green" if fraction < 0.7 else "yellow" if fraction < 0.95 else "red"
    return Cell(text, style if fraction else "dim", min(1.0, fraction))


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def echo_table(titles: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table; the last column may be wrapped on a terminal."""
    if not is_terminal():
        click.echo("\n".join(plain_lines(titles, rows)))
        return
    from rich.console import Console

    Console(highlight=False).print(rich_table(titles, rows))


def plain_lines(titles: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """The table as lines of text without trailing spaces."""
    texts = [list(titles), *([_cell(one).text for one in row] for row in rows)]
    widths = [max(len(line[column]) for line in texts) for column in range(len(titles))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in texts
    ]


def rich_table(titles: Sequence[str], rows: Sequence[Row]) -> "Table":
    """The table for rich, without a frame."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, title in enumerate(titles):
        is_last = number == len(titles) - 1
        table.add_column(title, no_wrap=not is_last, overflow="fold" if is_last else "ellipsis")
    for row in rows:
        table.add_row(*(Text(_on_terminal(cell), cell.style) for cell in map(_cell, row)))
    return table


def bar(fraction: float, width: int = _BAR_WIDTH) -> str:
    """A bar of blocks, in steps of an eighth of a character."""
    eighths = round(fraction * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)


def _on_terminal(cell: Cell) -> str:
    return cell.text if cell.bar is None else f"{bar(cell.bar)} {cell.text:>4}"


def _cell(one: Cell | str) -> Cell:
    return Cell(one) if isinstance(one, str) else one
