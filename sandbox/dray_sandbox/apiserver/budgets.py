"""PodDisruptionBudgets, which limit evictions.

No disruption controller runs here: the creator of a budget also writes its status. The rule is
`pkg/registry/core/pod/storage/eviction.go` of Kubernetes 1.36.
"""

from dray.api.pods import TERMINAL_PHASES

from . import metadata, status
from .rules import WithStatus
from .selectors import label_selector, matches_labels
from .status import Object
from .store import Conflict, Store, copy

_STORE_KEY = "policy/poddisruptionbudgets"
_RETRY_AFTER_S = 10
_WITHOUT_A_BUDGET = (*TERMINAL_PHASES, "Pending")
_MORE_THAN_ONE = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)


class BudgetRules(WithStatus):
    """PodDisruptionBudget."""

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})
        counts = obj.setdefault("status", {})
        for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
            counts.setdefault(name, 0)

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        self.default(obj)


def spend(store: Store, pod: Object, *, dry_run: bool) -> None:
    """Use one disruption of the pod's budget, if it has one; 429 if none is left."""
    phase = (pod.get("status") or {}).get("phase")
    if "deletionTimestamp" in pod["metadata"] or phase in _WITHOUT_A_BUDGET:
        return
    budgets = [b for b in store.items(_STORE_KEY, pod["metadata"]["namespace"]) if _covers(b, pod)]
    if not budgets:
        return
    if len(budgets) > 1:
        raise status.ApiError(500, "", _MORE_THAN_ONE)
    [budget] = budgets
    if _needs_none(budget, pod):
        return
    _check(budget)
    if not dry_run:
        _take(store, budget, pod["metadata"]["name"])


def _covers(budget: Object, pod: Object) -> bool:
    selector = budget["spec"].get("selector")
    labels = pod["metadata"].get("labels")
    return selector is not None and matches_labels(label_selector(selector), labels)


def _needs_none(budget: Object, pod: Object) -> bool:
    """Whether the eviction of an unready pod needs no disruption: enough others are healthy."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    if any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    now = budget["status"]
    return bool(now["currentHealthy"] >= now["desiredHealthy"] > 0)


def _check(budget: Object) -> None:
    name, now = budget["metadata"]["name"], budget["status"]
    if now.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        text = f"The disruption budget {name} is still being processed by the server."
        raise _too_many(text, retry_after_s=_RETRY_AFTER_S)
    if now["disruptionsAllowed"] <= 0:
        needs, has = now["desiredHealthy"], now["currentHealthy"]
        raise _too_many(
            f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
        )


def _too_many(text: str, retry_after_s: int = 0) -> status.ApiError:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": text}]}
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return status.ApiError(429, "TooManyRequests", message, details)


def _take(store: Store, budget: Object, pod: str) -> None:
    new: Object = copy(budget)
    now = new["status"]
    now["disruptionsAllowed"] -= 1
    now.setdefault("disruptedPods", {})[pod] = metadata.now()
    meta = budget["metadata"]
    try:
        store.write((_STORE_KEY, meta["namespace"], meta["name"]), new, budget)
    except Conflict as error:
        raise AssertionError("nothing else writes between two awaits") from error
