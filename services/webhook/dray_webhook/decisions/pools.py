"""Resolves a pod's GPUPool, SchedulingConfigTemplate and base template, and whether DRA is on.

Precedence: the pod's annotation, then the pool's SchedulingConfigTemplate, then off.
A denial lists the objects that it depends on (``unresolved``), so that they can be looked up once.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from dray.api.names import (
    BASE_TEMPLATE,
    DEFAULT_SCHEDULER_NAMES,
    DRA_ENABLED,
    GPUPOOL,
    OWNER_KUBE_SCHEDULER,
    TEMPLATE_LABEL,
    VOLCANO_SCHEDULER,
)
from dray.api.pods import Policy, Pool
from dray.messages.facts import TemplateObserved
from dray.messages.rpc import Lookup
from dray_webhook.decisions.annotations import AnnotationFindings, GpuRequest
from dray_webhook.decisions.view import DEFAULT_POOL, View

_MAX_BASE_NAME_LENGTH = 63
"""The base's name is a label value of derived templates and their claims."""
_MAX_LISTED_NAMES = 20
LOCAL_SERVICE_USERS = ("dray-claim-controller",)
"""The claim-controller's name on local control planes."""
NO_OTHER_WAY = "this installation has no other way to give a pod GPUs (devicePlugin.enabled)"


@dataclass(frozen=True, slots=True)
class Installation:
    """Settings of this installation of dray."""

    namespace: str
    """dray's namespace, which has the base templates for all namespaces."""
    service_users: tuple[str, ...] = ()
    """Users who may write the annotations that only dray writes."""
    scheduler_names: tuple[str, ...] = DEFAULT_SCHEDULER_NAMES
    """``schedulerName`` of pods that dray schedules, with GPUs or without."""
    gpu_resources: tuple[str, ...] = ()
    """Container resources that mean whole GPUs of dray."""
    device_plugin: bool = False
    """Whether node-agents are also device plugins, so that pods can get GPUs without claims."""

    @property
    def acts_for_volcano(self) -> bool:
        """Whether Volcano is absent and dray checks Volcano's objects instead."""
        return VOLCANO_SCHEDULER in self.scheduler_names


def service_users(namespace: str, others: Sequence[str] = LOCAL_SERVICE_USERS) -> tuple[str, ...]:
    """Users who may write dray's own annotations, if dray runs in ``namespace``."""
    return (f"system:serviceaccount:{namespace}:dray-claim-controller", *others)


@dataclass(slots=True)
class PoolResolution:
    """The objects that apply to a pod; ``None``: not found."""

    pool: Pool | None = None
    policy: Policy | None = None
    base: TemplateObserved | None = None
    dra_from: str = ""
    """What enabled DRA, for people; empty: it is off."""
    uses_plugin: bool = False
    """Whether the pod gets its GPUs through the device plugin, because DRA is off for it."""
    unresolved: list[Lookup] = field(default_factory=list)


def resolve(
    asked: GpuRequest,
    namespace: str,
    view: View,
    installation: Installation,
    findings: AnnotationFindings,
) -> PoolResolution:
    """Resolve the pod's objects in the view; adds errors to ``findings``."""
    resolver = _Resolver(asked, namespace, view, installation, findings)
    resolver.run()
    return resolver.found


def resolve_pool(
    asked: GpuRequest,
    namespace: str,
    view: View,
    installation: Installation,
    findings: AnnotationFindings,
) -> PoolResolution:
    """Resolve the pod's pool alone; adds errors to ``findings``."""
    resolver = _Resolver(asked, namespace, view, installation, findings)
    resolver.find_pool()
    return resolver.found


@dataclass(slots=True)
class _Resolver:
    asked: GpuRequest
    namespace: str
    view: View
    installation: Installation
    findings: AnnotationFindings
    found: PoolResolution = field(default_factory=PoolResolution)

    def run(self) -> None:
        pool = self.find_pool()
        if pool is None:
            return
        policy = self.found.policy = self._policy(pool)
        if pool.template and policy is None:
            return
        self.found.dra_from = self._dra_from(pool, policy)
        if self.found.dra_from or self.found.uses_plugin:
            self.found.base = self._base((policy.claim_template if policy else "") or BASE_TEMPLATE)

    def find_pool(self) -> Pool | None:
        pool = self.found.pool = self._pool()
        if pool is not None:
            self._check_pool(pool)
        return pool

    def _refuse(self, error: str, *depends_on: Lookup) -> None:
        """Add an error that depends on observed objects; they are unresolved until looked up."""
        self.found.unresolved.extend(
            lookup for lookup in depends_on if lookup not in self.view.asked
        )
        failures = [self.view.unanswered[one] for one in depends_on if one in self.view.unanswered]
        if failures:
            error += f" (dray could not make sure: {failures[0]}; try again)"
        self.findings.errors.append(error)

    def _pool(self) -> Pool | None:
        name = self.asked.pool
        if name is None:
            return None
        if not name:
            return self._default_pool()
        pool = self.view.pools.get(name)
        if pool is None:
            self._refuse(
                f'annotation {GPUPOOL} is "{name}": there is no such GPUPool; '
                f"expected one of: {_names(self.view.pools)}",
                Lookup(kind="pool", name=name),
            )
        return pool

    def _default_pool(self) -> Pool | None:
        pools, defaults = self.view.pools, self.view.default_pools
        if len(defaults) == 1:
            return next(iter(defaults.values()))
        if defaults:
            why = f"{_names(defaults)} are all marked spec.default: true; mark one, or name a pool"
        else:
            why = f"no GPUPool is marked spec.default: true; expected one of: {_names(pools)}"
        self._refuse(f"annotation {GPUPOOL} is missing, and {why}", DEFAULT_POOL)
        return None

    def _check_pool(self, pool: Pool) -> None:
        lookup = Lookup(kind="pool", name=pool.name)
        if pool.deleting:
            self._refuse(
                f'GPUPool "{pool.name}" is being deleted, and admits no new pods: name another '
                "pool, or create it again once it is gone",
                lookup,
            )
        if not pool.admits(self.namespace):
            allowed = ", ".join(f'"{name}"' for name in pool.allowed_namespaces)
            self._refuse(
                f'GPUPool "{pool.name}" does not admit pods of namespace "{self.namespace}": '
                f"expected one of: {allowed}",
                lookup,
            )
        if pool.owner == OWNER_KUBE_SCHEDULER and not self.view.cluster.allocating_scheduler:
            self._refuse(
                f'GPUPool "{pool.name}" is owned by kube-scheduler (spec.owner), and the scheduler '
                "of this cluster allocates no devices, so the pod would wait for ever: name a pool "
                "that dray owns, or set spec.owner: dray on this one",
                lookup,
            )

    def _policy(self, pool: Pool) -> Policy | None:
        policy = self.view.policies.get(pool.template) if pool.template else None
        if pool.template and policy is None:
            self._refuse(
                f'GPUPool "{pool.name}" names SchedulingConfigTemplate "{pool.template}", which '
                "does not exist: create it, or correct spec.schedulingConfigTemplate of the pool",
                Lookup(kind="policy", name=pool.template),
                Lookup(kind="pool", name=pool.name),
            )
        return policy

    def _dra_from(self, pool: Pool, policy: Policy | None) -> str:
        asked = self.asked.dra_enabled
        if asked:
            return "annotation"
        if asked is None and policy is not None and policy.dra_enabled:
            return f"SchedulingConfigTemplate {policy.name}"
        lookup = Lookup(kind="pool", name=pool.name)
        if self.installation.device_plugin and pool.owner != OWNER_KUBE_SCHEDULER:
            self.found.uses_plugin = True
        elif asked is False and pool.owner == OWNER_KUBE_SCHEDULER:
            self._refuse(
                f'annotation {DRA_ENABLED} is "false", but GPUPool "{pool.name}" is owned by '
                "kube-scheduler (spec.owner), which gives GPUs only to claims: leave the "
                "annotation out, or name a pool that dray owns",
                lookup,
            )
        elif asked is False:
            self.findings.errors.append(
                f'annotation {DRA_ENABLED} is "false", and {NO_OTHER_WAY}: '
                'expected "true", or no such annotation where the pool enables DRA'
            )
        elif policy is None:
            self._refuse(
                f'DRA is off for this pod: GPUPool "{pool.name}" has no schedulingConfigTemplate '
                f'to enable it, and {NO_OTHER_WAY}; set annotation {DRA_ENABLED}: "true"',
                lookup,
            )
        else:
            self._refuse(
                f'DRA is off for this pod: SchedulingConfigTemplate "{policy.name}" of GPUPool '
                f'"{pool.name}" has spec.dra.enable: false, and {NO_OTHER_WAY}; '
                f'set annotation {DRA_ENABLED}: "true", or enable it there',
                Lookup(kind="policy", name=policy.name),
                lookup,
            )
        return ""

    def _base(self, name: str) -> TemplateObserved | None:
        """The base template: from the pod's namespace first, then from dray's own."""
        if len(name) > _MAX_BASE_NAME_LENGTH:
            self.findings.errors.append(
                f'ResourceClaimTemplate "{name}" has a name of {len(name)} characters: expected '
                f"{_MAX_BASE_NAME_LENGTH} at most, because the name is recorded in a label"
            )
            return None
        places = tuple(dict.fromkeys((self.namespace, self.installation.namespace)))
        for place in places:
            base = self.view.templates.get((place, name))
            if base is not None:
                return self._labelled(base)
        where = " or ".join(f'"{place}"' for place in places)
        self._refuse(
            f'there is no ResourceClaimTemplate "{name}" in namespace {where}: '
            f'create it with label {TEMPLATE_LABEL}: "true"',
            *(Lookup(kind="template", name=name, namespace=place) for place in places),
        )
        return None

    def _labelled(self, base: TemplateObserved) -> TemplateObserved | None:
        seen = base.labels.get(TEMPLATE_LABEL)
        lookup = Lookup(kind="template", name=base.name, namespace=base.namespace)
        if base.unusable:
            self._refuse(
                f'ResourceClaimTemplate "{base.namespace}/{base.name}" can\'t be used: '
                f"{base.unusable}",
                lookup,
            )
            return None
        if seen == "true":
            return base
        has = "has no such label" if seen is None else f'has "{seen}"'
        self._refuse(
            f'ResourceClaimTemplate "{base.namespace}/{base.name}" is not marked as a base: '
            f'expected label {TEMPLATE_LABEL}: "true", it {has}',
            lookup,
        )
        return None


def _names(known: Collection[str]) -> str:
    """At most MAX_LISTED_NAMES names, quoted."""
    names = [f'"{name}"' for name in nsmallest(_MAX_LISTED_NAMES, known)]
    more = f" and {len(known) - len(names)} more" if len(known) > len(names) else ""
    return ", ".join(names) + more or "(there is no GPUPool yet)"
