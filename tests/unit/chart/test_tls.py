"""A server's certificate in a Secret: made, renewed in two steps, and always trusted."""

import datetime

import pytest

from dray.runtime.certificates import Issued, expires_at, problem
from dray_cli.chart.tls import DISTRIBUTION, RENEW_BEFORE, STAGED_AT, renewed

NAMES = ("dray-webhook", "dray-webhook.dray-system.svc")
DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


def issued(data: dict[str, str]) -> Issued:
    return Issued(*(data[name].encode() for name in ("ca.crt", "tls.crt", "tls.key")))


@pytest.fixture
def first() -> dict[str, str]:
    made = renewed({}, "dray-webhook", NAMES, NOW)
    assert made is not None
    return made


def test_a_new_certificate_serves_its_names_for_a_year(first):
    assert problem(issued(first), NAMES, at=NOW + 364 * DAY) == ""


def test_one_that_is_good_for_long_stays(first):
    assert renewed(first, "dray-webhook", NAMES, NOW + 100 * DAY) is None


def test_a_renewal_is_trusted_before_it_is_used_and_the_old_one_until_it_expires(first):
    soon = expires_at(first["tls.crt"].encode()) - RENEW_BEFORE + DAY

    staged = renewed(first, "dray-webhook", NAMES, soon)
    assert staged is not None
    assert staged["tls.crt"] == first["tls.crt"]
    assert first["ca.crt"] in staged["ca.crt"]
    new = Issued(*(staged[name].encode() for name in ("ca.crt", "staged.crt", "staged.key")))
    assert problem(new, NAMES, at=soon) == ""

    assert renewed(staged, "dray-webhook", NAMES, soon + DISTRIBUTION / 2) is None
    after = renewed(staged, "dray-webhook", NAMES, soon + DISTRIBUTION)
    assert after is not None
    assert after.keys() == first.keys()
    assert after["tls.crt"] == staged["staged.crt"]
    assert problem(issued(after), NAMES, at=soon) == ""
    old_server = Issued(
        after["ca.crt"].encode(), first["tls.crt"].encode(), first["tls.key"].encode()
    )
    assert problem(old_server, NAMES, at=soon) == ""


@pytest.mark.parametrize("broken", ["tls.key", "ca.crt", "tls.crt"])
def test_what_can_not_serve_is_made_again_at_once(first, broken):
    for text in ("", "nonsense"):
        made = renewed(first | {broken: text}, "dray-webhook", NAMES, NOW)
        assert made is not None
        assert problem(issued(made), NAMES, at=NOW) == ""


def test_an_expired_certificate_and_a_new_name_are_answered_at_once(first):
    late = expires_at(first["tls.crt"].encode()) + DAY
    made = renewed(first, "dray-webhook", NAMES, late)
    assert made is not None
    assert first["ca.crt"] not in made["ca.crt"]

    made = renewed(first, "dray-webhook", (*NAMES, "other"), NOW)
    assert made is not None
    assert first["ca.crt"] in made["ca.crt"]
    assert problem(issued(made), (*NAMES, "other"), at=NOW) == ""


def test_a_staged_certificate_that_can_not_serve_is_made_again(first):
    soon = expires_at(first["tls.crt"].encode()) - RENEW_BEFORE + DAY
    staged = renewed(first, "dray-webhook", NAMES, soon)
    assert staged is not None

    kept = renewed(staged | {"staged.key": "nonsense"}, "dray-webhook", NAMES, soon + DAY)
    assert kept is not None
    assert STAGED_AT not in kept
    again = renewed(kept, "dray-webhook", NAMES, soon + DAY)
    assert again is not None
    assert STAGED_AT in again
