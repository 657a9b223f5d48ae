"""The trace as a picture: valid XML, one bar per span, in its place."""

import re
from xml.etree import ElementTree

import pytest
from tests.unit.cli.trace.test_spans import a_trace, span

from dray_cli.trace import picture
from dray_cli.trace.spans import Moment, PodTrace

SVG = "{http://www.w3.org/2000/svg}"
ANGRY = 'free <vram> & "more"'


def the_trace() -> PodTrace:
    waits = Moment(name="waits", unix_ns=40_000_000, attributes={})
    return a_trace(
        span("admission", 0, 2),
        span("decision", 25, 50, service="allocator", events=(waits,)),
        span("late", 50, 100, service="allocator", status="error", reason=ANGRY),
    )


def bars(drawn: str) -> list[dict[str, str]]:
    """The bars, without the page behind them."""
    return [one.attrib for one in ElementTree.fromstring(drawn).iter(f"{SVG}rect")][1:]


def test_each_span_is_a_bar_at_its_share_of_the_whole() -> None:
    found = bars(picture.svg(the_trace()))

    left, right = 270.0, 960 - 80.0
    assert [float(one["x"]) for one in found] == [left, left + (right - left) / 4, 575.0]
    assert [float(one["width"]) for one in found] == pytest.approx([12.2, 152.5, 305.0])
    assert len({one["y"] for one in found}) == 3


def test_services_have_colours_and_failures_are_red() -> None:
    first, second, failed = bars(picture.svg(the_trace()))

    assert len({first["fill"], second["fill"], failed["fill"]}) == 3
    assert failed["fill"] == "#e5484d"


def test_texts_are_escaped_and_stand_in_tooltips() -> None:
    tree = ElementTree.fromstring(picture.svg(the_trace()))
    tooltips = [one.text or "" for one in tree.iter(f"{SVG}title")]

    assert f"late (allocator)\nfailed: {ANGRY}" in tooltips
    assert "waits" in tooltips


def test_the_axis_has_few_round_ticks() -> None:
    ticks = re.findall(r'text-anchor="middle">([^<]+)<', picture.svg(the_trace()))

    assert ticks == ["0 ms", "20 ms", "40 ms", "60 ms", "80 ms", "100 ms"]


def test_a_trace_of_no_length_can_be_drawn() -> None:
    assert len(bars(picture.svg(a_trace(span("admission", 0, 0))))) == 1


def test_the_page_has_the_picture_and_a_row_per_span() -> None:
    page = picture.html(the_trace())

    assert page.count("<svg ") == 1
    assert page.count("<tr><td") == 3
    assert "failed: free &lt;vram&gt; &amp;" in page
    assert "<script" not in page
