"""What a pod's decision is based on: placement, the policy's version, and what was learned."""

from dataclasses import dataclass
from typing import Any

from dray.api.names import (
    FRAGMENTATION_AWARE,
    GPU_TOPOLOGY,
    KUBERNETES_COMPATIBLE,
    PLACEMENT,
    PREFER,
)
from dray.api.placement import NO_TOPOLOGY, overridden, policy_placement
from dray.api.pods import Policy
from dray.kube.convert_pools import policy_from
from dray.kube.ports import POLICIES, Kube, NotFoundError, Object, RefusedError


@dataclass(frozen=True, slots=True)
class DecisionSource:
    """What a decision is based on, from the pod's BindRequest, with the pool's current policy."""

    policy_version: int
    """Generation of the policy that the decision followed; 0: the pool had none."""
    learned_version: int
    """The version of FragmentationAware's workload model; 0: there was none."""
    policy: str = ""
    """The SchedulingConfigTemplate that the pool follows; empty: none, or it can't be read."""
    newest_version: int = 0
    """The policy's generation now."""
    placement: str = ""
    """The mode or levels that decided; empty: the BindRequest does not say, and the policy has
    changed since."""
    ignored: tuple[str, ...] = ()
    """Annotations of the pod that have no effect with that placement."""

    def line(self) -> str:
        """The same as one line of text."""
        entry = [self._policy(), *self._learned()]
        line = f"Decided by {self.placement or 'a policy'} ({', '.join(entry)})"
        if not self.ignored:
            return line
        verb = "has" if len(self.ignored) == 1 else "have"
        return f"{line}; {' and '.join(self.ignored)} {verb} no effect with it"

    def as_json(self) -> dict[str, Any]:
        """The same as data, without what is not known."""
        known = {"placement": self.placement, "policy": self.policy, "ignored": self.ignored}
        return {
            **{name: value for name, value in known.items() if value},
            "policyVersion": self.policy_version,
            "learnedVersion": self.learned_version,
        }

    def _policy(self) -> str:
        if not self.policy_version:
            return "the pool had no SchedulingConfigTemplate"
        name = f"SchedulingConfigTemplate {self.policy or 'of its pool'}"
        changed = self.newest_version not in (0, self.policy_version)
        now = f", which is at {self.newest_version} now" if changed else ""
        return f"{name} version {self.policy_version}{now}"

    def _learned(self) -> list[str]:
        """Texts about the workload model; none if the placement does not use one."""
        if self.placement not in ("", FRAGMENTATION_AWARE):
            return []
        version = self.learned_version
        if not version:  # An unknown placement may be one that learns nothing.
            return ["nothing was learned yet"] if self.placement else []
        return [f"learned version {version}"]


async def decided_by(
    kube: Kube, pod: Object, pool: Object | None, bind_request: Object | None
) -> DecisionSource | None:
    """What the pod's decision is based on; None if there is no decision."""
    entry = ((bind_request or {}).get("status") or {}).get("decidedBy")
    if not entry:
        return None
    version, learned = int(entry["policyVersion"]), int(entry["learnedVersion"])
    found = await _policy(kube, pool) if version else None
    policy = None if found is None else policy_from(found)
    placement = str(entry.get("placement") or "")
    if not placement and version == (0 if policy is None else policy.version):
        placement = _placement(pod, policy)
    return DecisionSource(
        version,
        learned,
        policy=str(entry.get("policy") or ("" if policy is None else policy.name)),
        newest_version=0 if policy is None else policy.version,
        placement=placement,
        ignored=_ignored(pod, placement),
    )


def _ignored(pod: Object, placement: str) -> tuple[str, ...]:
    """Annotations about the pod's cards that kube-scheduler's allocator ignores."""
    says = pod["metadata"].get("annotations") or {}
    if placement != KUBERNETES_COMPATIBLE:
        return ()
    return tuple(
        name for name in (PREFER, GPU_TOPOLOGY) if says.get(name, NO_TOPOLOGY) != NO_TOPOLOGY
    )


async def _policy(kube: Kube, pool: Object | None) -> Object | None:
    name = ((pool or {}).get("spec") or {}).get("schedulingConfigTemplate")
    try:
        return await kube.get(POLICIES, name) if name else None
    except (NotFoundError, RefusedError):
        return None


def _placement(pod: Object, policy: Policy | None) -> str:
    says = pod["metadata"].get("annotations") or {}
    return overridden(policy_placement(policy), says.get(PLACEMENT, ""), "").words
