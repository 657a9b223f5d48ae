"""Texts fit into the terminal; identifiers are short."""

import sys

import pytest

from dray_cli.text import abbreviated, styled, wrapped, wrapped_on_terminal

LONG = "  reason: " + "word " * 20


def test_long_lines_are_broken_between_words_and_what_follows_is_deeper() -> None:
    first, second, *_ = wrapped(LONG, 40).split("\n")

    assert len(first) <= 40
    assert first.startswith("  reason: word")
    assert second.startswith("    word")


def test_short_and_empty_lines_and_long_words_stay() -> None:
    text = "head\n\n  " + "x" * 50

    assert wrapped(text, 40) == text


def test_a_pipe_gets_whole_lines_without_colour() -> None:
    assert wrapped_on_terminal(LONG) == LONG
    assert styled("x", fg="red") == "x"


def test_a_terminal_gets_broken_lines_and_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)

    assert max(map(len, wrapped_on_terminal(LONG).split("\n"))) <= 40
    assert styled("x", fg="red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("x", fg="red") == "x"


def test_uuids_are_abbreviated() -> None:
    text = "gpu=75e6b206-51c0-458b-b42c-3c1ab28a3a0b-x GPU-be008d03-aa40-5d64-8329-22122ec11e6b"

    assert abbreviated(text) == "gpu=75e6b206…-x GPU-be008d03…"
