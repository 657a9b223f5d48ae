"""The language of selectors: ``python -m benchmarks.cel``. Prints every figure with its target.

All figures are of one run on the named machine. A target is compared with the median; a comparison
of two engines is a ratio of medians that are measured in turn. Times are CPU times, which exclude
other work on the machine; on an idle machine they are the times that pass. ``--clock wall`` uses
wall time.
"""

import gc
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from benchmarks import cel_celpy
from benchmarks.cel_fleet import Asked, Cards
from benchmarks.cel_hostile import Hostile
from benchmarks.machine import machine, percentiles
from dray.cel.check.static_check import check_selector
from dray.cel.errors import CelCompileError, CelEvaluationError
from dray.cel.eval.program import compile, program_of
from dray.cel.syntax.parser import parse
from dray.cel.view import DeviceView


class _Clock:
    """The clock from which seconds are read."""

    now: Callable[[], float] = staticmethod(time.thread_time)


@dataclass(frozen=True)
class Row:
    """One figure. ``target`` is the most that it may be, or the least if ``at_least``."""

    what: str
    unit: str
    value: float
    target: float | None = None
    at_least: bool = False
    p99: float | None = None
    samples: int = 1

    @property
    def is_met(self) -> bool:
        """Whether it is within its target, if it has one."""
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target

    def __str__(self) -> str:
        spread = "" if self.p99 is None else f"p99 {self.p99:.4g}"
        sign = "≥" if self.at_least else "≤"
        target = "" if self.target is None else f"{sign} {self.target:g}"
        verdict = "" if self.target is None else ("ok" if self.is_met else "MISSED")
        return (
            f"{self.what:<68} {self.value:>9.4g} {self.unit:<3} {spread:<14} {target:<8} {verdict}"
        )


@click.command()
@click.option("--quick", is_flag=True, help="A hundredth of the bad inputs.")
@click.option("--clock", type=click.Choice(["cpu", "wall"]), default="cpu", show_default=True)
@click.option("--assert", "must_meet", is_flag=True, help="Exit with 1 if a target is missed.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(quick: bool, clock: str, must_meet: bool, output: str) -> None:
    """Measure the language of selectors on this machine."""
    _Clock.now = time.perf_counter if clock == "wall" else time.thread_time
    found: list[Row] = []
    if output == "text":
        click.echo(f"{machine()}; {clock} time\n")
    for row in rows(1_000 if quick else 100_000):
        found.append(row)
        if output == "text":
            click.echo(row)
    if output == "json":
        results = [{**vars(row), "met": row.is_met} for row in found]
        click.echo(json.dumps({"machine": machine(), "clock": clock, "results": results}, indent=2))
    if must_meet and not all(row.is_met for row in found):
        raise SystemExit(1)


def rows(bad_inputs: int, samples: int = 300) -> Iterator[Row]:
    """Every figure."""
    yield from _compiling(samples)
    yield from _evaluating(samples)
    yield from _resisting(bad_inputs)


def _compiling(samples: int) -> Iterator[Row]:
    asked = Asked(seed=5)
    texts = [asked.selector() for _ in range(samples)]
    yield _timed("parse + check one auto selector, cold", "ms", texts, _check, target=0.4)


def _check(text: str) -> object:
    return check_selector(parse(text), text)


def _evaluating(samples: int) -> Iterator[Row]:
    text = Asked(seed=8).selector()
    program, peer = compile(text), cel_celpy.program(text)
    views = [view for _, view in Cards(seed=8).fleet(200)]
    whole = [view for view in views if program.matches(view)] or views
    ours: list[float] = []
    theirs: list[float] = []
    for view in (views + whole * 20)[:samples]:
        ours.append(_seconds(lambda view=view: program.matches(view)))
        device = cel_celpy.ready(view)
        theirs.append(_seconds(lambda device=device: peer(device)))
        assert program.matches(view) == peer(device)
    found, other = percentiles(ours), percentiles(theirs)
    yield Row(
        "exact evaluator, one device, auto selector", "µs", found["p50"] * 1e6, 30,
        p99=found["p99"] * 1e6, samples=len(ours),
    )  # fmt: skip
    yield Row(
        "celpy, the same device and selector", "µs", other["p50"] * 1e6,
        p99=other["p99"] * 1e6, samples=len(ours),
    )  # fmt: skip
    yield Row("celpy is slower by", "×", other["p50"] / found["p50"], 60, at_least=True)


def _resisting(count: int) -> Iterator[Row]:
    """The slowest text of each kind: the best of three times, because a slow text is always slow.

    Older objects are hidden from the garbage collector, and the texts leave none behind.
    """
    slowest: dict[str, float] = {}
    accepted = 0
    gc.collect()
    gc.freeze()
    for kind, text in Hostile().texts(count):
        taken, is_selector = _judged(text)
        accepted += is_selector
        if taken > slowest.get(kind, 0.0):
            again = min(taken, _judged(text)[0], _judged(text)[0])
            slowest[kind] = max(slowest.get(kind, 0.0), again)
    gc.unfreeze()
    for kind, seconds in sorted(slowest.items(), key=lambda one: -one[1]):
        yield Row(f"slowest bad input: {kind}", "ms", seconds * 1e3, 50)
    yield Row(f"of {count:,} bad inputs are selectors by chance", "", accepted)
    costly = compile("lists.range(100000).all(i, i >= 0)")
    yield Row("a costly evaluation stops after", "ms", _seconds(lambda: _fails(costly)) * 1e3, 50)


def _judged(text: str) -> tuple[float, bool]:
    """Seconds to parse, check and compile a text, and whether it is a selector."""
    start = _Clock.now()
    try:
        program_of(check_selector(parse(text), text))
    except CelCompileError:
        return _Clock.now() - start, False
    return _Clock.now() - start, True


def _fails(program: Any) -> None:
    try:
        program.matches(DeviceView("driver"))
    except CelEvaluationError:
        return
    raise AssertionError("an evaluation without end came to one")


def _timed(
    what: str,
    unit: str,
    inputs: list[Any],
    work: Callable[[Any], object],
    *,
    target: float | None = None,
) -> Row:
    """Median and 99th percentile of ``work`` on each input, in ``unit``."""
    scale = {"ms": 1e3, "µs": 1e6}[unit]
    taken = [_seconds(lambda one=one: work(one)) * scale for one in inputs]
    found = percentiles(taken)
    return Row(what, unit, found["p50"], target, p99=found["p99"], samples=len(taken))


def _seconds(work: Callable[[], object]) -> float:
    start = _Clock.now()
    work()
    return _Clock.now() - start


if __name__ == "__main__":
    main()
