"""The questions: small random clusters, the same ones for the same seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from allocation.claims import Scene, make_claims, make_classes, make_held
from allocation.effort import bounded
from allocation.fleet import make_slices
from allocation.reach import make_node
from allocation.themes import draw_gates, draw_themes

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One question to both programs."""

    id: str
    question: Json


def cases(seed: int, count: int, minor: str) -> Iterator[Case]:
    """``count`` cases as a cluster of ``minor`` can have them; each depends on its number alone."""
    for number in range(count):
        yield _case(random.Random(f"{seed}/{minor}/{number}"), f"{seed}-{number}", minor)


def _case(rng: random.Random, name: str, minor: str) -> Case:
    themes = draw_themes(rng, minor)
    slices = make_slices(rng, themes)
    scene = Scene(rng, themes, slices)
    question = {
        "id": name,
        "k8s": minor,
        "features": draw_gates(rng, minor, themes),
        "node": make_node(rng),
        "slices": slices,
        "classes": make_classes(scene),
        "allocated": make_held(scene),
        "claims": make_claims(scene),
    }
    return Case(name, bounded(question))
