"""Hostile text: an error with a place, whatever it is, in work that grows with its length only."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.cel.check.static_check import check_selector
from dray.cel.cost.estimate import estimate
from dray.cel.errors import CelCompileError
from dray.cel.syntax.lexer import scan
from dray.cel.syntax.parser import parse

REFUSED = {
    "open parentheses": "(" * 10_000,
    "open lists": "[" * 10_000,
    "open maps": "{" * 10_000,
    "mixed brackets": "([{" * 3_000,
    "closed parentheses": "(" * 5_000 + "1" + ")" * 5_000,
    "a megabyte of brackets": "(" * 1_000_000,
    "a megabyte of text": "a" * 1_000_000,
    "a tower of branches": "true ? 1 : " * 900 + "1",
    "a long path": "a" + ".a" * 5_000,
    "a long sum": " + ".join(["1"] * 2_500),
    "calls inside calls": "f(" * 3_000,
    "macros on macros": "[1]" + ".map(x, x)" * 1_000,
    "messages in messages": "a{b:" * 2_500,
    "a thousand unknown names": " || ".join(f"n{i}" for i in range(1_000)),
    "a long number": "9" * 10_000,
    "a long hexadecimal number": "0x" + "f" * 10_000,
    "a number with a long exponent": "1e" + "9" * 9_000,
    "a string that never ends": '"' + "a" * 10_000,
    "half strings": '"\\q' * 3_000,
    "half long strings": '"""a' * 2_501,
    "escapes without end": "\\" * 10_000,
    "backticks": "`" * 10_000,
    "half surrogates": "'\ud800' == device.driver",
    "zero bytes": "\0" * 10_000,
    "nothing": "",
    "lines": "\n" * 10_000,
    "a mixed list": "[" + ", ".join(["1", '"a"'] * 1_000) + "].size() == 1",
    "a pattern beyond RE2": '"a".matches("' + "(" * 3_000 + '")',
}
ACCEPTED = {
    "as many parentheses as may be": "(" * 248 + "1" + ")" * 248 + " == 1",
    "as many lists as may be": "[" * 240 + "1" + "]" * 240 + " != []",
    "conversions in conversions": "dyn(" * 240 + "1" + ")" * 240 + " == 1",
    "a long chain": " && ".join(["true"] * 1_500),
    "a long list": "[" + ", ".join(["1"] * 4_000) + "].size() == 1",
    "a list of empty lists": "[" + ", ".join(["[]"] * 2_000) + "] == []",
    "optionals that double": "optional.of(1)" + ".optMap(x, x)" * 200 + ".hasValue()",
    "signs": "!" * 10_000 + "true",
}


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_text_is_refused_with_its_place(name):
    text = REFUSED[name]
    with pytest.raises(CelCompileError) as caught:
        check_selector(parse(text), text)
    assert caught.value.line >= 1
    assert 1 <= caught.value.column <= len(text) + 1
    assert len(str(caught.value)) < 2_000


@pytest.mark.parametrize("name", ACCEPTED)
def test_large_text_that_kubernetes_accepts_is_accepted(name):
    text = ACCEPTED[name]
    assert estimate(check_selector(parse(text), text)) >= 0


def test_deep_text_needs_no_deeper_stack_than_it_says(monkeypatch):
    """Walks over the deepest trees fit the room that the parser makes."""
    text = "[!(true && 1 < 1 + -(" * 62 + "1" + "))]" * 62 + " == []"
    with pytest.raises(CelCompileError, match="matching overload"):
        check_selector(parse(text), text)
    assert sys.getrecursionlimit() <= 10_000


class Counted(dict):
    """Counts how often it is asked."""

    asked = 0

    def get(self, *key):
        self.asked += 1
        return super().get(*key)


@pytest.mark.parametrize("piece", ["[] + ", "{'a': []}.size() + ", "[optional.none()].size() + "])
def test_the_work_of_the_check_grows_with_the_length(piece, monkeypatch):
    def work(count):
        table = Counted()
        monkeypatch.setattr("dray.cel.types.types._made", table)
        text = "[" + ", ".join([piece + piece[:-3]] * count) + "].size() == 1"
        check_selector(parse(text), text)
        return table.asked

    assert work(400) < 2.5 * work(200)


PIECES = st.sampled_from(
    ["device", ".", "attributes", "[", "]", "(", ")", "{", "}", '"', "'", "?", ":", ",", "&&", "||",
     "!", "-", "==", " in ", "has", "all", "x", "1", "0x", "1e", "u", "\\", "\n", "//", "'''", 'r"',
     "\x00", "é", "𝔘", "null", "true", "optional.of", "cel.bind(x, ", ".?", "[?", "`a`", ".map(x, "]
)  # fmt: skip


def refusal_of(text):
    """Line and column of the error, or the estimated cost."""
    try:
        return None, estimate(check_selector(parse(text), text))
    except CelCompileError as error:
        return (error.line, error.column), None


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES | st.text(max_size=3), max_size=40).map("".join))
def test_garbage_is_an_error_with_a_place_or_an_expression(text):
    place, cost = refusal_of(text)
    assert cost is not None or min(place) >= 1


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_tokens_cover_the_text_in_order(text):
    texts, starts = scan(text)
    assert [text[at : at + len(t)] for t, at in zip(texts, starts, strict=True)] == texts
    assert starts == sorted(starts)
    assert starts[-1] == len(text)
