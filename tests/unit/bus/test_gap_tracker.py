"""A reader of last values knows when what it folded is a state that there was."""

from hypothesis import given
from hypothesis import strategies as st

from dray.bus.gap_tracker import GapTracker


def test_a_reader_that_misses_nothing_is_whole_at_every_message():
    reader = GapTracker()

    for sequence in (1, 2, 3):
        assert reader.read(sequence, pending=10) is None
        assert reader.whole


def test_after_a_gap_it_is_whole_once_it_has_read_what_there_was():
    reader = GapTracker()

    assert reader.read(4, pending=2) == (1, 3)
    assert not reader.whole
    reader.read(5, pending=7)
    assert not reader.whole
    reader.read(6, pending=7)
    assert reader.whole


def test_nothing_pending_is_everything():
    reader = GapTracker()

    reader.read(4, pending=50)
    reader.read(9, pending=0)
    assert reader.whole


@given(
    subjects=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    lags=st.lists(st.integers(0, 8), min_size=1, max_size=40),
)
def test_whole_states_are_states_of_the_stream(subjects, lags):
    """Whatever is replaced while a reader lags: where it says whole, its fold is the stream's."""
    stream: dict[int, int] = {}
    history: dict[int, dict[int, int]] = {}
    published, folded, reader = 0, {}, GapTracker()
    waiting = list(subjects)
    for lag in [*lags, *[0] * len(subjects)]:
        for subject in waiting[: lag + 1]:
            published += 1
            stream = {n: s for n, s in stream.items() if s != subject} | {published: subject}
            history[published] = {s: n for n, s in stream.items()}
        del waiting[: lag + 1]
        left = sorted(n for n in stream if n > reader.position)
        if not left:
            continue
        reader.read(left[0], pending=len(left) - 1)
        folded[stream[left[0]]] = left[0]
        if reader.whole:
            assert folded == history[left[0]]
    assert reader.whole
