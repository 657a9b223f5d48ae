"""How long something has been so without a pause."""

from dray_claim_controller.execution.decisions.timers import due


def test_time_counts_from_the_last_pause() -> None:
    since_s: dict[str, float] = {}
    results = []
    for now_s, present in ((0.0, ["p"]), (5.0, []), (11.0, ["p"]), (21.0, ["p"])):
        found = due(present, since_s, now_s=now_s, after_s=10.0)
        since_s = found.since_s
        results.append(found.now)

    assert results == [(), (), (), ("p",)]
    assert since_s == {"p": 11.0}


def test_some_have_more_time() -> None:
    more_s = {"p": 5.0}
    first = due(["p", "q"], {}, now_s=0.0, after_s=10.0, more_s=more_s)
    second = due(["p", "q"], first.since_s, now_s=10.0, after_s=10.0, more_s=more_s)
    third = due(["p", "q"], second.since_s, now_s=15.0, after_s=10.0, more_s=more_s)

    assert [first.now, second.now, third.now] == [(), ("q",), ("p", "q")]
