"""Which derived templates are no longer used. Pure."""

from dray.api.names import DERIVED_FROM_LABEL
from dray.kube.ports import TEMPLATES, Object
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.execution.decisions.timers import Due, due


def _is_derived(template: Object) -> bool:
    """Whether dray made the template."""
    return DERIVED_FROM_LABEL in (template["metadata"].get("labels") or {})


def unused_templates(cache: ObjectCache) -> list[str]:
    """``namespace/name`` of derived templates that no pod refers to."""
    return [
        name
        for name, template in cache.plain[TEMPLATES.plural].items()
        if _is_derived(template) and name not in cache.template_users
    ]


class Garbage(RecordedRule[Due], frozen=True, kw_only=True, tag="garbage"):
    """``namespace/name`` of derived templates to be deleted."""

    after_s: float
    now_s: float
    """Monotonic."""
    since_s: dict[str, float]

    def answer(self, cache: ObjectCache) -> Due:
        unused = unused_templates(cache)
        return due(unused, self.since_s, now_s=self.now_s, after_s=self.after_s)

    def polled(self) -> str:
        return "garbage"
