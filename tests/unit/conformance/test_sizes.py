"""What a run of the oracles must show, by how much it asks."""

from pathlib import Path
from types import SimpleNamespace

import pytest

ORACLE = Path(__file__).parents[2] / "conformance" / "oracle"


@pytest.fixture(scope="module")
def module(importing_from):
    """Import a module of the oracles' comparisons."""
    with importing_from(ORACLE) as module:
        yield module


@pytest.mark.parametrize(
    ("asked", "share"), [(20_000, 1.0), (40_000, 1.0), (19_999, 0.5), (4_000, 0.5), (3_999, 0.0)]
)
def test_a_smaller_run_must_show_half_and_a_small_one_nothing(module, asked, share) -> None:
    assert module("comparing").wanted_share(asked, 20_000) == share


@pytest.mark.parametrize(
    ("asked", "least"), [(40_000, 400.0), (20_000, 200.0), (4_000, 20.0), (100, 0.0)]
)
def test_each_feature_must_decide_its_share_of_the_pairs(module, asked, least) -> None:
    assert module("compare")._least_decided(asked) == pytest.approx(least)


@pytest.mark.parametrize(
    ("cases", "share", "code"),
    [(5_000, 0.049, 1), (5_000, 0.05, 0), (1_000, 0.024, 1), (1_000, 0.025, 0), (999, 0.0, 0)],
)
def test_each_feature_must_be_in_its_share_of_the_cases(module, cases, share, code) -> None:
    found = SimpleNamespace(differences=[], undecided=0)
    shares = SimpleNamespace(rarest=lambda: ("share held", share))
    done = SimpleNamespace(minor="1.36", cases=cases)
    assert module("compare_allocations")._code(found, shares, done) == code
