"""How often something may be done."""

from dray.runtime.token_bucket import TokenBucket


def test_so_many_at_once_then_so_many_each_second() -> None:
    bucket = TokenBucket(3, 0.5, now_s=100.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(101.9), bucket.take(102.0), bucket.take(102.0)] == [False, True, False]


def test_rest_gains_no_more_than_the_most() -> None:
    bucket = TokenBucket(2, 1.0, now_s=0.0)
    assert [bucket.take(1000.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_goes_back_gains_nothing() -> None:
    bucket = TokenBucket(1, 1.0, now_s=10.0)
    assert bucket.take(10.0)
    assert not bucket.take(3.0)
    assert not bucket.take(3.5)
    assert bucket.take(4.5)
