"""A trace as a picture: a self-contained SVG, and a page around it with the details. Pure."""

from collections.abc import Iterator
from xml.sax.saxutils import escape

from dray_cli.trace.spans import UNFINISHED, PodTrace, TraceSpan, in_tree_order
from dray_cli.trace.waterfall import details, head, milliseconds

_WIDTH = 960
_NAMES = 270
"""Width of the column of names, in pixels."""
_RIGHT = 80
"""Room for the duration after the longest bar."""
_TOP = 84
_ROW = 26
_TICKS = 6
_COLOURS = ("#4269d0", "#3ca951", "#efb118", "#a463f2", "#9c6b4e", "#6cc5b0")
"""By service, in the order of their first spans."""
_FAILED = "#e5484d"
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1b1f24; }
  .title { font-size: 16px; font-weight: 600; }
  .faint { fill: #6a737d; font-size: 11px; }
  .grid { stroke: #d8dee4; stroke-width: 1; }
  .page { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .faint { fill: #8b949e; }
    .grid { stroke: #30363d; } .page { fill: #0d1117; }
  }
"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
  body {{ font: 14px system-ui, sans-serif; margin: 2em auto; max-width: 960px; }}
  body {{ color-scheme: light dark; }}
  svg {{ max-width: 100%; height: auto; }}
  td, th {{ text-align: left; vertical-align: top; padding: 3px 14px 3px 0; }}
  td.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
  td {{ overflow-wrap: anywhere; }}
</style></head><body>
{svg}
<table><thead><tr><th>start</th><th>duration</th><th>span</th><th>service</th><th>details</th></tr>
</thead><tbody>
{rows}
</tbody></table>
</body></html>
"""


def svg(trace: PodTrace) -> str:
    """The waterfall as SVG: a row per span, a colour per service, red for what failed.

    A row's tooltip has the span's details.
    """
    rows = list(in_tree_order(trace.spans))
    height = _TOP + _ROW * len(rows) + 16
    services = list(dict.fromkeys(span.service for _, span in rows))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(services)}
    title, source = (escape(line) for line in head(trace))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-label="{_attribute(title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="16" y="28">{title}</text>',
        f'<text class="faint" x="16" y="47">{source}</text>',
        *_axis(trace, height),
    ]
    for number, (depth, span) in enumerate(rows):
        lines += _row(trace, span, depth, _TOP + number * _ROW, colours[span.service])
    return "\n".join((*lines, "</svg>")) + "\n"


def html(trace: PodTrace) -> str:
    """A page without scripts: the picture, and a table with every span's details."""
    title = escape(f"{trace.namespace}/{trace.pod}")
    return _PAGE.format(title=title, svg=svg(trace), rows="\n".join(_table_rows(trace)))


def _x(trace: PodTrace, unix_ns: int) -> float:
    whole = max(1, trace.duration_ns)
    share = (unix_ns - trace.start_unix_ns) / whole
    return _NAMES + share * (_WIDTH - _NAMES - _RIGHT)


def _axis(trace: PodTrace, height: int) -> Iterator[str]:
    step_ns = _step_ns(max(1, trace.duration_ns))
    for offset_ns in range(0, trace.duration_ns + 1, step_ns):
        x = _x(trace, trace.start_unix_ns + offset_ns)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{height - 12}"/>'
        text = milliseconds(offset_ns).replace(".0 ", " ")
        yield f'<text class="faint" x="{x:.1f}" y="{_TOP - 13}" text-anchor="middle">{text}</text>'


def _step_ns(whole_ns: int) -> int:
    """1, 2 or 5 times a power of ten, such that there are few ticks."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power * _TICKS >= whole_ns:
                return factor * power
        power *= 10


def _row(trace: PodTrace, span: TraceSpan, depth: int, y: int, colour: str) -> Iterator[str]:
    start, end = _x(trace, span.start_unix_ns), _x(trace, span.end_unix_ns)
    width = max(2.0, end - start)
    is_failed = span.status in ("error", UNFINISHED)
    fill = _FAILED if span.status == "error" else colour
    opacity = ' fill-opacity="0.55"' if is_failed else ""
    about = "\n".join((f"{span.name} ({span.service})", *details(trace, span)))
    middle = y + _ROW / 2
    yield f"<g><title>{escape(about)}</title>"
    yield (
        f'<text x="{16 + 14 * depth}" y="{middle + 4}">{escape(span.name)}'
        f'<tspan class="faint" dx="8">{escape(span.service)}</tspan></text>'
    )
    yield (
        f'<rect x="{start:.1f}" y="{y + 5}" width="{width:.1f}" height="{_ROW - 10}" rx="3" '
        f'fill="{fill}"{opacity}/>'
    )
    duration = milliseconds(span.end_unix_ns - span.start_unix_ns)
    yield f'<text class="faint" x="{start + width + 6:.1f}" y="{middle + 4}">{duration}</text>'
    for moment in span.events:
        x = _x(trace, moment.unix_ns)
        yield (
            f'<circle cx="{x:.1f}" cy="{middle}" r="3" fill="#ffffff" stroke="{fill}">'
            f"<title>{escape(moment.name)}</title></circle>"
        )
    yield "</g>"


def _table_rows(trace: PodTrace) -> Iterator[str]:
    for depth, span in in_tree_order(trace.spans):
        texts = "<br>".join(escape(line) for line in details(trace, span))
        start = milliseconds(span.start_unix_ns - trace.start_unix_ns)
        duration = milliseconds(span.end_unix_ns - span.start_unix_ns)
        yield (
            f'<tr><td class="number">{start}</td><td class="number">{duration}</td>'
            f"<td>{'&nbsp;' * 2 * depth}{escape(span.name)}</td><td>{escape(span.service)}</td>"
            f"<td>{texts}</td></tr>"
        )


def _attribute(text: str) -> str:
    return text.replace('"', "&quot;")
