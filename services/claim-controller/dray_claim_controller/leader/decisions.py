"""Whether a Lease may be taken, as client-go's leader election decides it. Pure."""

import math
from dataclasses import dataclass
from typing import Any

from dray.kube.convert import time_to
from dray.kube.ports import LEASES, Object


@dataclass(frozen=True, slots=True)
class Observation:
    """A state of the Lease, and when it was first seen (own monotonic seconds)."""

    resource_version: str
    holder: str
    duration_s: float
    seen_s: float


def observe(lease: Object, before: Observation | None, now_s: float) -> Observation:
    """The Lease as seen now. The clocks of others are not trusted: only the time counts for which
    this process has seen no renewal."""
    spec = lease.get("spec") or {}
    version = str(lease["metadata"]["resourceVersion"])
    if before is not None and before.resource_version == version:
        return before
    return Observation(
        version,
        spec.get("holderIdentity") or "",
        float(spec.get("leaseDurationSeconds") or 0),
        now_s,
    )


def may_take(observation: Observation, identity: str, now_s: float) -> bool:
    """Whether ``identity`` may write itself into the Lease."""
    if observation.holder in ("", identity):
        return True
    return now_s - observation.seen_s > observation.duration_s


def lease_spec(
    before: Object | None, identity: str, duration_s: float, now_unix_s: float
) -> dict[str, Any]:
    """The Lease's spec with ``identity`` as its holder."""
    spec = dict((before or {}).get("spec") or {})
    fraction = f".{int(now_unix_s % 1 * 1e6):06d}Z"
    now = time_to(now_unix_s).removesuffix("Z") + fraction
    if spec.get("holderIdentity") != identity:
        spec["acquireTime"] = now
        spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (before is not None)
    spec |= {
        "holderIdentity": identity,
        # The API takes whole seconds. They are rounded up, because the holder counts on all of
        # them.
        "leaseDurationSeconds": max(1, math.ceil(duration_s)),
        "renewTime": now,
    }
    return spec


def new_lease(name: str, namespace: str, spec: dict[str, Any]) -> Object:
    """A Lease that does not exist yet."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
