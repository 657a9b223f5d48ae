"""Pods that come and go by a seed, in pools of dray's and in one of kube-scheduler's."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Create:
    """A pod that asks for ``gpus`` cards of these amounts."""

    name: str
    pool: str
    gpus: int
    tflops: int
    vram_gi: int


@dataclass(frozen=True, slots=True)
class Delete:
    """A pod goes, whatever has become of it."""

    name: str


Step = Create | Delete


def steps(seed: int, count: int, pools: Sequence[str], most_living: int) -> Iterator[Step]:
    """``count`` creations and deletions, the same for the same seed; at most ``most_living`` pods
    are there at once. The pools take turns by chance, the first ones oftener."""
    draw = random.Random(seed)
    living: list[str] = []
    weights = [2 * len(pools) - place for place in range(len(pools))]
    for number in range(count):
        if living and (len(living) >= most_living or draw.random() < 0.42):
            yield Delete(living.pop(draw.randrange(len(living))))
            continue
        name = f"churn-{number}"
        living.append(name)
        yield Create(
            name,
            draw.choices(pools, weights)[0],
            gpus=draw.choice((1, 1, 1, 2)),
            tflops=draw.randrange(10, 313),
            vram_gi=draw.randrange(1, 41),
        )
