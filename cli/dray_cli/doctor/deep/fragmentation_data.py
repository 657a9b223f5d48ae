"""The data that FragmentationAware uses in each pool, from the pool's decision log. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from dray.messages.decisions import Learned, TypicalPod
from dray_cli.doctor.deep.snapshot import ClusterSnapshot
from dray_cli.doctor.findings import Finding
from dray_cli.text import counted

_AREA = "What was learned about pods"
_SHOWN = 8
_CARD = 1000


def learned_of(snapshot: ClusterSnapshot) -> dict[str, Learned]:
    """Per pool, the data that its last decisions used; pools that learned nothing are left out."""
    learned = {one.name: one.current.learned for one in snapshot.state.domains.values()}
    return {name: one for name, one in sorted(learned.items()) if one is not None}


def learned_findings(learned: dict[str, Learned]) -> list[Finding]:
    """One finding per pool; lines below it list the classes of cards and the most frequent pods."""
    return [
        Finding(
            _AREA,
            f"pool {name}",
            "ok",
            f"version {one.version}, {counted(len(one.pods), 'typical pod')} on "
            f"{counted(len(one.classes), 'class of cards', 'classes of cards')}",
            tuple(_beneath(one)),
        )
        for name, one in learned.items()
    ]


def as_json(learned: dict[str, Learned]) -> dict[str, Any]:
    """All data as in the log, with each pod's share of all pods."""
    return {
        name: {
            "version": one.version,
            "classes": list(one.classes),
            "pods": [
                {"share": round(share, 6), **msgspec.to_builtins(pod)}
                for share, pod in _by_share(one.pods)
            ],
        }
        for name, one in learned.items()
    }


def _beneath(learned: Learned) -> Iterator[str]:
    yield from (f"class {at}: {' '.join(name.split())}" for at, name in enumerate(learned.classes))
    for share, pod in _by_share(learned.pods)[:_SHOWN]:
        yield (
            f"{share:6.1%} of pods: cpu {pod.cpu_milli / 1000:g}, {_cards(pod)}; "
            f"gain {pod.gain}, waste {pod.waste}"
        )
    rest = len(learned.pods) - _SHOWN
    if rest > 0:
        yield f"and {rest} rarer pods; --output json lists all"


def _by_share(pods: Sequence[TypicalPod]) -> list[tuple[float, TypicalPod]]:
    """The pods with their shares, the most frequent first."""
    total = sum(pod.count for pod in pods) or 1
    shares = [(pod.count / total, pod) for pod in pods]
    return sorted(shares, key=lambda one: -one[0])


def _cards(pod: TypicalPod) -> str:
    """``2 cards: 50 % (class 0), whole (class 1)``: the part of each card, by class."""
    if not pod.cards:
        return "no card"
    parts = [f"{_part(milli)} (class {at})" for at, milli in enumerate(pod.milli) if milli]
    usable = ", ".join(parts) or "of no model in this pool"
    return f"{counted(pod.cards, 'card')}: {usable}"


def _part(milli: int) -> str:
    return "whole" if milli >= _CARD else f"{milli / 10:g} %"
