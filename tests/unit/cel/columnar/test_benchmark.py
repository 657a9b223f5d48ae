"""The benchmark of selectors runs, and states every target; how fast it is, is not tested."""

from benchmarks.cel import rows


def test_every_target_of_the_language_is_measured() -> None:
    found = list(rows(devices=16, bad_inputs=40, samples=3))
    targets = {row.what.partition(";")[0]: row.target for row in found if row.target is not None}

    assert targets == {
        "memory: columns of 16 cards and 200 masks, names included": 100,
        "parse + check one auto selector, cold": 0.4,
        "a selector already seen: its mask over 16 cards": 1,
        "a new auto selector over 16 cards, columns in place": 0.5,
        "one device changes to values seen before": 0.5,
        "… to values never seen": 0.5,
        "exact evaluator, one device, auto selector": 30,
        "celpy is slower by": 60,
        "a costly evaluation stops after": 50,
        **{what: 50 for what in targets if what.startswith("slowest bad input: ")},
    }
