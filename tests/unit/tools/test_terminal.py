"""The recording of a terminal: lines appear in time, scroll, and keep colours and columns."""

import re
from pathlib import Path
from xml.etree import ElementTree

from tools.terminal.screen import ROWS, ScreenLine, svg

SVG = "{http://www.w3.org/2000/svg}"
COMMITTED = Path(__file__).parents[3] / "docs" / "terminal.svg"


def drawn(*lines: ScreenLine) -> tuple[str, list[ElementTree.Element]]:
    """The style, and the texts."""
    picture = svg(lines, 40.0)
    tree = ElementTree.fromstring(picture)
    style = tree.find(f"{SVG}style")
    assert style is not None
    return style.text or "", list(tree.iter(f"{SVG}text"))


def test_a_line_appears_at_its_share_of_the_time() -> None:
    style, _ = drawn(ScreenLine(0.0, "first"), ScreenLine(10.0, "second"))

    assert "@keyframes t1{0%{opacity:0}25.00%,100%{opacity:1}}" in style
    assert "#l1{animation-name:t1}" in style


def test_lines_scroll_once_the_window_is_full() -> None:
    style, _ = drawn(*(ScreenLine(float(at), "x") for at in range(ROWS + 2)))

    moved = [int(by) for by in re.findall(r"translateY\((-?\d+)px\)", style)]
    assert moved[ROWS - 1 :] == [0, -18, -36, -36]


def test_colours_and_columns_are_kept() -> None:
    _, (text,) = drawn(ScreenLine(0.0, "a  \x1b[32mok\x1b[0m <b>"))

    runs = [(run.text, run.get("x"), run.get("fill")) for run in text]
    assert runs == [
        ("a\u00a0\u00a0", "16.0", None),
        ("ok", "41.2", "#7ee787"),
        ("\u00a0<b>", "58.0", None),
    ]


def test_commands_stand_out() -> None:
    _, (text,) = drawn(ScreenLine(0.0, "$ dray top"))

    assert [(run.text, run.get("fill")) for run in text] == [
        ("$", "#79c0ff"),
        ("dray\u00a0top", "#ffffff"),
    ]


def test_the_committed_recording_lasts_forty_seconds_and_is_small() -> None:
    text = COMMITTED.read_text()

    ElementTree.fromstring(text)
    assert "animation:40s" in text
    assert len(text) < 64_000
    assert "/root" not in text
    assert "/work" not in text
