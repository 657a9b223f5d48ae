"""Whether a node-agent's report becomes a fact. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from dray.api.devices import ResourceSlice
from dray.api.names import DRIVER, GPU_LABEL, GPU_PRESENT
from dray.messages.base import token
from dray.messages.facts import Fact, InventoryObserved
from dray.messages.rpc import Inventory

AHEAD: Final = 100
"""How far a reported generation may be ahead of the slices that this process has seen."""
HIGHEST_GENERATION: Final = 2**53
"""A generation is an int64 in Kubernetes and a double in many clients. The agent writes the next
one, which must be exact, too."""


def forgery(asked: Inventory, *, subject_node: str, user: str) -> str | None:
    """Why a report is not from the agent of its node, or None."""
    if not user or user != asked.node or token(user) != subject_node:
        return (
            f"the report about node {asked.node!r} came as {subject_node!r} from the user "
            f"{user or 'unknown'!r}; an agent may report only its own node"
        )
    return None


def doubt(
    asked: Inventory, slices: Sequence[ResourceSlice], *, node_exists: bool, known: int = 0
) -> str | None:
    """Why a report can't be believed yet, compared with the node's slices in Kubernetes; or None.
    ``known``: the revision of the node's last fact, for a node that has withdrawn its slices.

    Slices are watched: a report may be ahead of the watch, and is then repeated.
    """
    if asked.driver != DRIVER:
        return f"the report is about the driver {asked.driver!r}; expected {DRIVER!r}"
    if not node_exists:
        return f"there is no Node {asked.node}, or it was not seen yet"
    own = [one for one in slices if one.node == asked.node]
    shown = max((one.generation for one in own), default=known)
    most = min(shown + AHEAD, HIGHEST_GENERATION)
    if not 1 <= asked.generation <= most:
        return (
            f"generation {asked.generation} of node {asked.node} is not between 1 and {most}: "
            f"its ResourceSlices show {shown}"
        )
    devices = {device.name for one in own for device in one.devices}
    if unknown := [name for name in asked.unhealthy if name not in devices]:
        return (
            f"{len(unknown)} unhealthy devices are in no ResourceSlice of node {asked.node}, such "
            f"as {unknown[0]!r}"
        )
    return None


def lacks_label(asked: Inventory, labels: Mapping[str, str]) -> bool:
    """Whether the reporting node is to be labelled as one with GPUs. The label stays if a later
    report names no GPUs: a pool must not lose a node while its driver is replaced."""
    return asked.devices > 0 and labels.get(GPU_LABEL) != GPU_PRESENT


def next_fact(
    asked: Inventory,
    before: InventoryObserved | None,
    doubted: Sequence[Fact] = (),
) -> InventoryObserved | None:
    """What to publish, or None if the bus has it already, or has a newer one.

    The fact gets a higher revision if its devices differ at a generation that was reported already,
    or if the node is back: readers take the newer one. ``doubted``: later facts that may be stored.
    """
    unhealthy = tuple(sorted(dict.fromkeys(asked.unhealthy)))
    if before is not None and not before.deleted:
        is_known = asked.generation == before.revision and unhealthy == before.unhealthy
        if asked.generation < before.revision or (is_known and not doubted):
            return None
    highest = max((one.revision for one in (before, *doubted) if one is not None), default=0)
    return InventoryObserved(
        revision=max(asked.generation, highest + 1),
        node=asked.node,
        driver=asked.driver,
        unhealthy=unhealthy,
    )
