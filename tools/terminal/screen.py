"""Draws the lines of a terminal, each with the time when it appears, as an animated SVG. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from rich.text import Text

COLUMNS = 80
ROWS = 26
_CHARACTER = 8.4
"""Width in pixels."""
_LINE = 18
_MARGIN = 16
_TOP = 44
"""Room for the window's buttons, in pixels."""
_COLOURS = {
    "color(1)": "#ff7b72",
    "color(2)": "#7ee787",
    "color(3)": "#e3b341",
    "bold": "#ffffff",
    "dim": "#6e7681",
    "prompt": "#79c0ff",
}
"""By a part of a rich style's name; the first match counts."""
_PROMPT = "$ "


@dataclass(frozen=True, slots=True)
class ScreenLine:
    """A line of the terminal."""

    at_s: float
    """When it appears."""
    text: str
    """The text, with the terminal's colour escapes."""


def svg(lines: Sequence[ScreenLine], duration_s: float) -> str:
    """The animation; it begins again after ``duration_s``.

    The newest line is never below the window: earlier lines move up.
    """
    width = round(COLUMNS * _CHARACTER + 2 * _MARGIN)
    height = _TOP + ROWS * _LINE + _MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="A terminal with dray">',
            f"<style>{''.join(_style(lines, duration_s))}</style>",
            f'<rect width="{width}" height="{height}" rx="10" fill="#0d1117"/>',
            *(
                f'<circle cx="{20 + 18 * number}" cy="20" r="6" fill="{colour}"/>'
                for number, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
            ),
            f'<svg y="{_TOP}" width="{width}" height="{ROWS * _LINE}"><g id="lines">',
            *(_line(number, line) for number, line in enumerate(lines)),
            "</g></svg>",
            "</svg>\n",
        )
    )


def _style(lines: Sequence[ScreenLine], duration_s: float) -> Iterator[str]:
    yield (
        "text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#c9d1d9;white-space:pre;"
        f"opacity:0;animation:{duration_s:g}s steps(1,end) infinite}}"
    )
    times = sorted({line.at_s for line in lines})
    for number, at_s in enumerate(times):
        share = 100 * at_s / duration_s
        yield f"@keyframes t{number}{{0%{{opacity:0}}{share:.2f}%,100%{{opacity:1}}}}"
    yield f"#lines{{animation:up {duration_s:g}s steps(1,end) infinite}}"
    steps = "".join(
        f"{100 * at_s / duration_s:.2f}%{{transform:translateY({-_LINE * hidden}px)}}"
        for at_s, hidden in _hidden(lines)
    )
    last = _hidden(lines)[-1][1]
    yield f"@keyframes up{{{steps}100%{{transform:translateY({-_LINE * last}px)}}}}"
    for number, line in enumerate(lines):
        yield f"#l{number}{{animation-name:t{times.index(line.at_s)}}}"


def _hidden(lines: Sequence[ScreenLine]) -> list[tuple[float, int]]:
    """Times, each with the number of lines that have left the window by then."""
    found = {0.0: 0}
    for count, line in enumerate(lines, 1):
        found[line.at_s] = max(0, count - ROWS)
    return sorted(found.items())


def _line(number: int, line: ScreenLine) -> str:
    y = (number + 1) * _LINE - 4
    spans = "".join(_spans(line.text))
    return f'<text id="l{number}" x="{_MARGIN}" y="{y}">{spans}</text>'


def _spans(text: str) -> Iterator[str]:
    """Runs of one style, each at its column: fonts differ in width."""
    parsed = Text.from_ansi(text)
    plain = parsed.plain
    styles = [""] * len(plain)
    for span in parsed.spans:
        for at in range(span.start, span.end):
            styles[at] = _style_name(str(span.style)) or styles[at]
    if plain.startswith(_PROMPT):
        styles = ["prompt", "", *["bold"] * (len(plain) - 2)]
    start = 0
    for at in range(1, len(plain) + 1):
        if at < len(plain) and styles[at] == styles[start]:
            continue
        run, colour = plain[start:at], _COLOURS.get(styles[start])
        if run.strip():
            fill = f' fill="{colour}"' if colour else ""
            x = _MARGIN + start * _CHARACTER
            length = len(run) * _CHARACTER
            yield (
                f'<tspan x="{x:.1f}" textLength="{length:.1f}"{fill}>{escape(_fixed(run))}</tspan>'
            )
        start = at


def _fixed(run: str) -> str:
    """The text with spaces that no viewer drops."""
    return run.replace(" ", "\u00a0")


def _style_name(style: str) -> str:
    return next((name for name in _COLOURS if name in style), "")
