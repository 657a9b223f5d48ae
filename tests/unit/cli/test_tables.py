"""Tables: plain in a pipe, with bars and colours on a terminal of any width."""

import io
import re

import pytest
from rich.console import Console

from dray_cli.tables import Cell, bar, fill_cell, plain_lines, rich_table

ROWS = [["n1/gpu-0", fill_cell(0.5, "50%"), "team/a 50%"], ["n1/gpu-1", "", Cell("x", "red")]]
TITLES = ["NAME", "FILL", "HELD BY"]


def shown(width: int, **environment: str) -> str:
    printed = io.StringIO()
    variables = {"TERM": "xterm", **environment}
    console = Console(file=printed, width=width, force_terminal=True, _environ=variables)
    console.print(rich_table(TITLES, ROWS))
    return printed.getvalue()


def test_a_pipe_gets_aligned_text_without_colour() -> None:
    assert plain_lines(TITLES, ROWS) == [
        "NAME      FILL  HELD BY",
        "n1/gpu-0  50%   team/a 50%",
        "n1/gpu-1        x",
    ]


def test_a_terminal_gets_bars_and_colour() -> None:
    assert "\x1b[32m██  " in shown(80)


def test_no_color_is_respected() -> None:
    assert "\x1b[3" not in shown(80, NO_COLOR="1")
    assert "██  " in shown(80, NO_COLOR="1")


@pytest.mark.parametrize("width", [40, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown(width)).splitlines()

    assert max(len(line) for line in lines) <= width


@pytest.mark.parametrize(
    ("fraction", "drawn"),
    [(0, "    "), (0.03125, "▏   "), (0.5, "██  "), (0.6, "██▍ "), (1, "████")],
)
def test_a_bar_is_exact_to_an_eighth(fraction: float, drawn: str) -> None:
    assert bar(fraction, 4) == drawn
