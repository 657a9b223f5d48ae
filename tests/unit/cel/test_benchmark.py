"""The benchmark of selectors runs, and states every target; how fast it is, is not tested."""

from benchmarks.cel import rows


def test_every_target_of_the_language_is_measured() -> None:
    found = list(rows(bad_inputs=40, samples=3))
    targets = {row.what.partition(";")[0]: row.target for row in found if row.target is not None}

    assert targets == {
        "parse + check one auto selector, cold": 0.4,
        "exact evaluator, one device, auto selector": 30,
        "celpy is slower by": 60,
        "a costly evaluation stops after": 50,
        **{what: 50 for what in targets if what.startswith("slowest bad input: ")},
    }
