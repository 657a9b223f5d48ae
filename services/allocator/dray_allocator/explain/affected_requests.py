"""The requests of a pod that a reason is about. A reason about all requests names none."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from dray.api.claims import Claim
from dray.reasons import Reason

_MOST_NAMED: Final = 4
"""Limit of names in a text: a claim may have hundreds of requests and alternatives."""


def named(request: str, claim: int, claims: Sequence[Claim]) -> str:
    """A request, with the number of its claim if there are several claims. The claim's name is left
    out: pods of equal signature share reasons, and their claims may have different names."""
    return request if len(claims) == 1 else f"{request} of claim {claim + 1}"


def each_once(reasons_of: Sequence[tuple[Sequence[str], Iterable[Reason]]]) -> Iterator[Reason]:
    """Each reason once, with the names of the requests that it is about."""
    about: dict[Reason, list[str]] = {}
    for requests, reasons in reasons_of:
        for reason in dict.fromkeys(reasons):
            about.setdefault(reason, []).extend(requests)
    every = sum(len(requests) for requests, _ in reasons_of)
    for reason, requests in about.items():
        is_of_all = len(requests) == every
        yield reason if is_of_all else replace(reason, what=f"{_listed(requests)}: {reason.what}")


def _listed(requests: Sequence[str]) -> str:
    more = len(requests) - _MOST_NAMED
    text = ", ".join(requests[:_MOST_NAMED])
    return f"request{'' if len(requests) == 1 else 's'} {text}{f' and {more} more' * (more > 0)}"
