"""Which of the feasible nodes and devices a pod gets: a pool's ``placement``, and a pod's override.

Unknown values of a policy, which a newer version may have written, count as absent. Annotations
of pods are checked at admission (``parse_placement``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from dray.api.names import (
    COMPACT_FIRST,
    DEFAULT_PLACEMENT,
    FRAGMENTATION_AWARE,
    KUBERNETES_COMPATIBLE,
    LOW_LOAD_FIRST,
    NODE_COMPACT_GPU_LOW_LOAD,
)
from dray.api.pods import Policy

BINPACK: Final = "binpack"
_SPREAD: Final = "spread"
LEVELS: Final = (BINPACK, _SPREAD)
_MODES: Final = {
    COMPACT_FIRST: (BINPACK, BINPACK),
    LOW_LOAD_FIRST: (_SPREAD, _SPREAD),
    NODE_COMPACT_GPU_LOW_LOAD: (BINPACK, _SPREAD),
    FRAGMENTATION_AWARE: ("", ""),
    KUBERNETES_COMPATIBLE: ("", ""),
}
"""Node level and device level of each mode. Empty: nodes and devices are chosen together, or the
first that fit are used."""

_SOFT: Final = "soft"
HARD: Final = "hard"
NO_TOPOLOGY: Final = "none"
_TOPOLOGIES: Final = (_SOFT, HARD, NO_TOPOLOGY)
_DEFAULT_TOPOLOGY: Final = _SOFT


@dataclass(frozen=True, slots=True)
class Placement:
    """How nodes and devices are chosen among those that fit."""

    node: str = ""
    """``binpack`` or ``spread``. If the mode has no levels, this and ``gpu`` are empty."""
    gpu: str = ""
    weights: tuple[tuple[str, int], ...] = ()
    """Weights of resources, by name; empty: the most used resource of a device counts."""
    topology: str = _DEFAULT_TOPOLOGY
    """Whether pods with several devices need connected ones: ``soft``, ``hard`` or ``none``."""
    is_compatible: bool = False
    """Whether devices are chosen as kube-scheduler's allocator chooses them, without scores."""

    @property
    def is_aware(self) -> bool:
        """Whether placement minimizes fragmentation."""
        return not self.node and not self.is_compatible

    @property
    def words(self) -> str:
        """The mode's name, or else the levels as in an annotation: ``node=spread,gpu=binpack``."""
        if self.is_compatible:
            return KUBERNETES_COMPATIBLE
        levels = (self.node, self.gpu)
        by_levels = f"node={self.node},gpu={self.gpu}"
        return next((mode for mode, its in _MODES.items() if its == levels), by_levels)


def placement_of(
    mode: str = "",
    node: str = "",
    gpu: str = "",
    weights: Mapping[str, int] | None = None,
    topology: str = "",
) -> Placement:
    """A policy's placement from its fields. An empty field is absent."""
    weighed = tuple(sorted((name, one) for name, one in (weights or {}).items() if one > 0))
    is_load = bool({node, gpu} & {*LEVELS} or weighed)
    by_mode = _MODES.get(mode) or _MODES[COMPACT_FIRST if is_load else DEFAULT_PLACEMENT]
    found = Placement(
        *by_mode,
        topology=topology if topology in _TOPOLOGIES else _DEFAULT_TOPOLOGY,
        is_compatible=mode == KUBERNETES_COMPATIBLE,
    )
    found = _with_levels(found, node, gpu)
    return replace(found, weights=weighed) if found.node else found


def policy_placement(policy: Policy | None) -> Placement:
    """The placement of a SchedulingConfigTemplate. None: the pool has no template."""
    if policy is None:
        return placement_of()
    return placement_of(
        policy.placement,
        policy.placement_node,
        policy.placement_gpu,
        policy.placement_weights,
        policy.placement_topology,
    )


def overridden(policy: Placement, placement: str, topology: str) -> Placement:
    """The policy with a pod's overrides. The policy's weights stay. Invalid overrides count as
    absent."""
    try:
        mode, node, gpu = parse_placement(placement) if placement else ("", "", "")
    except ValueError:
        mode = node = gpu = ""
    if mode:
        node, gpu = _MODES[mode]
        policy = replace(
            policy,
            node=node,
            gpu=gpu,
            weights=policy.weights if node else (),
            is_compatible=mode == KUBERNETES_COMPATIBLE,
        )
    else:
        policy = _with_levels(policy, node, gpu)
    return replace(policy, topology=topology) if topology in _TOPOLOGIES else policy


def _with_levels(placement: Placement, node: str, gpu: str) -> Placement:
    node, gpu = (one if one in LEVELS else "" for one in (node, gpu))
    if not node and not gpu:
        return placement
    return replace(
        placement,
        node=node or placement.node or BINPACK,
        gpu=gpu or placement.gpu or BINPACK,
        is_compatible=False,
    )


@lru_cache(maxsize=256)
def parse_placement(text: str) -> tuple[str, str, str]:
    """Mode, node level and device level of a pod's own placement. Empty parts are absent.

    Raises:
        ValueError: the text is invalid; the message lists the valid values.
    """
    if text in _MODES:
        return text, "", ""
    levels: dict[str, str] = {}
    for part in text.split(","):
        level, _, value = (one.strip() for one in part.partition("="))
        if level not in ("node", "gpu") or level in levels or value not in LEVELS:
            modes = ", ".join(f'"{mode}"' for mode in _MODES)
            raise ValueError(
                f"expected {modes}, or binpack or spread for each level, such as "
                '"node=binpack,gpu=spread"; leave the annotation out to have the pool\'s'
            )
        levels[level] = value
    return "", levels.get("node", ""), levels.get("gpu", "")


def parse_topology(text: str) -> str:
    """A pod's own ``gpu-topology``.

    Raises:
        ValueError: the text is invalid; the message lists the valid values.
    """
    if text not in _TOPOLOGIES:
        raise ValueError(
            'expected "soft", to prefer connected GPUs, "hard", to wait for them, or "none"'
        )
    return text
