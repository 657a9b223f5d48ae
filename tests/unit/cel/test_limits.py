"""No expression runs away: what is stopped, and that nothing absorbs it."""

import tracemalloc

import pytest

from dray.cel.errors import CelCostError
from dray.cel.eval.frame import Frame
from dray.cel.eval.program import compile
from dray.cel.library.work_steps import steps_of, steps_to_compare, weight
from dray.cel.limits import COST_LIMIT, WORK_LIMIT, StoppedError, refuse_excess_work
from dray.cel.view import DeviceView

DEVICE = DeviceView("d.example.com")
TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"


def _nested(levels):
    inner = "true"
    for level in range(levels):
        inner = f"{TEN}.all(x{level}, {inner})"
    return inner


def _doubled(start, join, use, times=60):
    """Values that double with each ``cel.bind``."""
    text = use.replace("$", f"v{times}")
    for level in range(times, 0, -1):
        text = f"cel.bind(v{level}, {join.replace('$', f'v{level - 1}')}, {text})"
    return f"cel.bind(v0, {start}, {text})"


STOPPED = [
    "lists.range(100000).all(i, i >= 0)",
    "lists.range(10000000).size() > 0",
    "lists.range(9223372036854775807) == []",
    _nested(7),
    _doubled("'xxxxxxxx'", "$ + $", "size($) > 0"),
    _doubled("[1]", "$ + $", "size($) > 0"),
    _doubled("[1]", "[$, $]", "$ == $"),
    _doubled("[1]", "[$, $]", "'%s'.format([$]) == ''"),
    _doubled("[1]", "[$, $]", "[[$]].flatten(70).size() > 0"),
    _doubled("[1]", "[$, $]", "[$, $].distinct().size() > 0"),
    "lists.range(30000).map(i, [i]).distinct().size() > 0",
    "lists.range(2000).map(i, 'ab').join('').replace('', 'abcdefghijklmnopqrstuvwxyz' + "
    "'abcdefghijklmnopqrstuvwxyz').replace('a', lists.range(9000).map(i, 'x').join('')) == ''",
    "'%.999999f'.format([1.0]) == ''",
    "lists.range(9000).map(i, i % 3 == 0 ? 'abba' : 'bab').join('').matches('a(a|b){900}c')",
    r"lists.range(50).all(i, ''.matches('\\pL{100}' + string(i)) || true)",
    r"lists.range(50).all(i, ''.matches('(\\pL{9}){99}' + string(i)) || true)",
    "lists.range(9000).all(i, ''.matches('(a' + string(i)) || true)",
    _doubled("optional.of([1])", "optional.of([$, $])", "$ == $"),
    _doubled("optional.of([1])", "optional.of([$, $])", "$ in [$]"),
    _doubled("optional.of([1])", "optional.of([$, $])", "sets.contains([$], [$])"),
    f"lists.range(1000).all(i, '{'a' * 4000}'.findAll('').size() > 0)",
    f"'{'a' * 9000}'.findAll('a').size() == 9000",
]


@pytest.mark.parametrize("text", STOPPED, ids=lambda text: text[:40])
def test_what_would_run_away_is_stopped(text):
    with pytest.raises(CelCostError, match="actual cost limit exceeded"):
        compile(text).matches(DEVICE)


@pytest.mark.parametrize("text", STOPPED, ids=lambda text: text[:40])
def test_what_is_stopped_took_little_memory(text):
    program = compile(text)
    tracemalloc.start()
    try:
        program.evaluate(DEVICE)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 64 * 2**20


@pytest.mark.parametrize("around", ["$ || true", "true || $", "!($ && false)", "false ? $ : true"])
def test_only_what_is_not_evaluated_is_not_stopped(around):
    program = compile(around.replace("$", "lists.range(1000000).size() > 0"))

    stopped = around in ("$ || true", "!($ && false)")
    assert (program.evaluate(DEVICE).value is None) is stopped


def test_a_loop_of_ten_thousand_rounds_is_answered():
    assert compile(_nested(4)).evaluate(DEVICE).value is True


def test_the_cost_limit_counts_where_the_work_is_small():
    few, many = (
        compile(f"lists.range({length}).distinct().size() > 1").evaluate(DEVICE)
        for length in (600, 800)
    )

    assert (few.value, few.error) == (True, None)
    assert isinstance(many.error, CelCostError)
    assert few.cost < COST_LIMIT < many.cost


def test_work_is_refused_before_it_is_done():
    frame = Frame(DEVICE, 0)
    frame.spend(WORK_LIMIT)

    with pytest.raises(StoppedError):
        frame.spend(1)
    with pytest.raises(StoppedError):
        refuse_excess_work(WORK_LIMIT + 1)


def test_the_weight_of_a_value_is_counted_no_further_than_the_limit():
    value = [1]
    for _ in range(200):
        value = [value, value]

    assert WORK_LIMIT < weight(value) < 2 * WORK_LIMIT


def test_what_is_slow_for_each_element_counts_more_than_walking_over_it():
    """Each was slower than a tenth of a microsecond a step, and so not stopped in time."""
    items = list(range(1000))
    assert steps_to_compare(items, items) > 2 * weight(items)
    assert steps_of("format", ["%s", [items]]) > 2 * weight(items)
    assert steps_of("isURL", ["x" * 9000]) > 2 * weight("x" * 9000)


def test_the_first_matches_are_found_without_the_others():
    text = f"'{'a' * 9000}'"
    assert compile(f"{text}.find('a') == 'a'").matches(DEVICE)
    assert compile(f"{text}.findAll('a', 3).size() == 3").matches(DEVICE)
