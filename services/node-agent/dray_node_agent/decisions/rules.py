"""The node-agent's rules with their inputs, as they are recorded and replayed.

A rule has all inputs of its answer, so that each line of the journal can be replayed alone.
"""

from abc import abstractmethod
from typing import Any, Generic, Self, TypeVar

import msgspec

from dray.kube.convert import claim_from
from dray.kube.convert_pods import claim_names
from dray.kube.ports import CLAIMS, PODS, SLICES, Object
from dray.recording.questions import RuleInput, by_name
from dray.recording.redaction import redacted
from dray_node_agent.decisions.claim_devices import (
    DeviceFullError,
    NotPreparedError,
    claim_parts,
    device_uses,
    is_prepared_for,
    prepared_claim,
    require_capacity,
)
from dray_node_agent.decisions.gpus import GpuSnapshot
from dray_node_agent.decisions.inventory import (
    NodeInventory,
    NodeState,
    slices,
    unhealthy_devices,
    with_generation,
)
from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.decisions.slice_diff import (
    Path,
    SliceChanges,
    changes,
    generation_of,
    is_published,
)
from dray_node_agent.decisions.visible_gpus import ClaimPart, visible_gpus

A = TypeVar("A")


class AgentRule(RuleInput, Generic[A], frozen=True, kw_only=True):
    """A rule with all its inputs."""

    @abstractmethod
    def answer(self) -> A:
        """Evaluate the rule."""

    def redacted(self) -> Self:
        """The rule as recorded."""
        return self

    def redacted_answer(self, answer: A) -> A:
        """The answer as recorded."""
        return answer


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """The node's next slices."""

    generation: int
    writes: SliceChanges | None
    """None: nothing to write."""
    unhealthy: tuple[str, ...]
    """Names of the published devices that must not be allocated. The claim-controller refuses
    reports about other devices."""


class PublishSlices(AgentRule[Publication], frozen=True, kw_only=True, tag="publish"):
    """Decides the writes that publish a snapshot of the node's GPUs."""

    snapshot: GpuSnapshot = msgspec.field(name="reading")
    state: NodeState
    existing: tuple[Object, ...]
    """The existing slices."""
    dropped: tuple[Path, ...] = ()
    """Fields that the server drops; sorted."""
    floor: int = 0
    """A generation that the node had before."""
    remembered: int = 0
    """The generation on disk."""
    joint_counters: bool = False
    """Whether the server wants counters in the slice of their devices."""
    in_use: dict[str, float] = msgspec.field(default_factory=dict)
    """The devices that claims use, with the part that is taken, from 0 to 1."""

    def answer(self) -> Publication:
        current = generation_of(self.existing)
        wanted = self._slices(current)
        names = {device["name"] for one in wanted for device in one["spec"].get("devices", ())}
        unhealthy = tuple([one for one in unhealthy_devices(self.snapshot) if one in names])
        if not wanted and not self.existing:
            known = max(self.floor, self.remembered, 1)
            return Publication(generation=known, writes=None, unhealthy=unhealthy)
        is_current = bool(self.existing) and current >= self.floor
        if is_current and is_published(wanted, self.existing, self.dropped):
            return Publication(generation=current, writes=None, unhealthy=unhealthy)
        generation = max(current, self.floor, self.remembered) + 1
        wanted = tuple(with_generation(one, generation) for one in wanted)
        writes = changes(wanted, self.existing)
        return Publication(generation=generation, writes=writes, unhealthy=unhealthy)

    def _slices(self, generation: int) -> tuple[Object, ...]:
        is_drained = self.state.unschedulable and not self.in_use
        if is_drained:
            return ()
        return slices(
            self.snapshot,
            self.state,
            generation=generation,
            joint_counters=self.joint_counters,
            in_use=self.in_use,
        )

    def redacted(self) -> Self:
        # Slices do not depend on the driver's edits of containers.
        snapshot = msgspec.structs.replace(self.snapshot, driver_edits={})
        return msgspec.structs.replace(self, snapshot=snapshot, existing=_slices(self.existing))

    def redacted_answer(self, answer: Publication) -> Publication:
        if answer.writes is None:
            return answer
        made = (answer.writes.deletes, answer.writes.updates, answer.writes.creates)
        return msgspec.structs.replace(answer, writes=SliceChanges(*map(_slices, made)))


def _slices(objects: tuple[Object, ...]) -> tuple[Object, ...]:
    return tuple(redacted(SLICES.plural, one) for one in objects)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a claim is not prepared; the kubelet shows the text."""

    why: str
    full: bool = False
    """Whether a device has no capacity left; some claims on it may no longer exist."""


class PrepareClaim(AgentRule[PreparedClaim | Refusal], frozen=True, kw_only=True, tag="prepare"):
    """Decides a claim's GPUs, limits and CDI devices on this node."""

    claim: Object
    """As read from the API server."""
    uid: str
    """The uid that the kubelet passed."""
    node: str
    snapshot: GpuSnapshot = msgspec.field(name="reading")
    state: NodeState
    held: tuple[PreparedClaim, ...] = ()
    """The other claims prepared here."""
    was_unprepared: bool = False
    """Whether the kubelet has unprepared this claim before."""
    traceparent: str = ""
    pod: Object | None = None
    """The only pod that the claim is reserved for; None: there are several, or it is unknown."""
    siblings: dict[str, tuple[ClaimPart, ...]] = msgspec.field(default_factory=dict)
    """CDI devices of the pod's other claims, by entry of ``spec.resourceClaims``."""

    def answer(self) -> PreparedClaim | Refusal:
        claim = claim_from(self.claim)
        # A claim is reserved before it is prepared, so this call is older than its Unprepare.
        if self.was_unprepared and not claim.reserved_for:
            where = f"claim {claim.namespace}/{claim.name}"
            why = f"{where} was unprepared here and no pod reserves it: a late retry"
            return Refusal(why=why)
        if claim.spec.unreadable:
            where = f"claim {claim.namespace}/{claim.name}"
            return Refusal(why=f"{where} {claim.spec.unreadable}")
        inventory = NodeInventory(self.snapshot, self.state)
        try:
            wanted = device_uses(claim, self.uid, self.node, inventory.published_gpus)
            require_capacity(wanted, self.held, inventory.published_gpus)
            visible = self._visible(claim_parts(claim, wanted))
            return prepared_claim(claim, wanted, inventory, self.traceparent, visible)
        except NotPreparedError as error:
            return Refusal(why=str(error), full=isinstance(error, DeviceFullError))

    def _visible(self, own: tuple[ClaimPart, ...]) -> dict[str, tuple[str, ...] | None]:
        if self.pod is None:
            return {}
        name = self.claim["metadata"]["name"]
        parts = {
            entry: own if claim == name else self.siblings.get(entry, ())
            for entry, claim in claim_names(self.pod).items()
        }
        return visible_gpus(self.pod, parts)

    def redacted(self) -> Self:
        return msgspec.structs.replace(
            self,
            claim=redacted(CLAIMS.plural, self.claim),
            pod=self.pod and redacted(PODS.plural, self.pod),
        )


class ClaimLiveCheck(AgentRule[bool], frozen=True, kw_only=True, tag="is-live"):
    """Decides whether a prepared claim still exists with its devices."""

    uid: str
    claim: Object | None
    """None: no claim has that name."""
    entry: PreparedClaim | None = None
    """What was prepared; None: an earlier release, which checked only for an allocation."""

    def answer(self) -> bool:
        if self.claim is None:
            return False
        claim = claim_from(self.claim)
        if self.entry is not None:
            return is_prepared_for(self.entry, claim)
        return claim.uid == self.uid and claim.allocation is not None

    def redacted(self) -> Self:
        kept = self.claim and redacted(CLAIMS.plural, self.claim)
        return msgspec.structs.replace(self, claim=kept)


RULES: dict[str, type[AgentRule[Any]]] = by_name(ClaimLiveCheck, PrepareClaim, PublishSlices)
"""By recorded name."""


def recorded_answer(answer: Any) -> Any:
    """An answer as recorded: a bool, or its type and value."""
    return answer if isinstance(answer, bool) else {type(answer).__name__: answer}


def replay_rule(about: str, data: Any) -> Any:
    """This version's answer to a recorded rule.

    Raises KeyError for an unknown rule, msgspec.ValidationError for inputs that don't fit.
    """
    rule = msgspec.convert(data, RULES[about])
    return recorded_answer(rule.redacted_answer(rule.answer()))
