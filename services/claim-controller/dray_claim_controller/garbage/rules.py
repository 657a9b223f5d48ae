"""Which derived templates are no longer used. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dray.domain.names import DERIVED_FROM_LABEL
from dray.kube.ports import TEMPLATES, Object
from dray_claim_controller.observe.picture import Picture


def is_derived(template: Object) -> bool:
    """Whether dray made the template."""
    return DERIVED_FROM_LABEL in (template["metadata"].get("labels") or {})


def used_templates(picture: Picture) -> set[str]:
    """``namespace/name`` of the templates that pods which have not ended refer to."""
    used = set()
    for seen in picture.pods.values():
        if seen.terminal or not seen.object:
            continue
        namespace = seen.object["metadata"]["namespace"]
        for entry in seen.object["spec"].get("resourceClaims") or ():
            used.add(f"{namespace}/{entry.get('resourceClaimTemplateName') or ''}")
    return used


def unused_templates(picture: Picture) -> list[str]:
    """``namespace/name`` of derived templates that no pod refers to."""
    used = used_templates(picture)
    return [
        name
        for name, template in picture.plain[TEMPLATES.plural].items()
        if is_derived(template) and name not in used
    ]


@dataclass(slots=True)
class Unused:
    """Since when templates are unused, in monotonic seconds."""

    after_s: float
    since_s: dict[str, float] = field(default_factory=dict)

    def due(self, unused: Iterable[str], now_s: float) -> list[str]:
        """Those that have been unused, without a pause, for ``after_s`` seconds."""
        present = tuple(unused)
        self.since_s = {name: self.since_s.get(name, now_s) for name in present}
        return [name for name in present if now_s - self.since_s[name] >= self.after_s]
