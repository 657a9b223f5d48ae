"""Questions about derived templates. Pure."""

import msgspec

from dray.kube.ports import TEMPLATES
from dray_claim_controller.deciding.executing import Due
from dray_claim_controller.deciding.seam import Question
from dray_claim_controller.garbage.rules import Unused, unused_templates
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.templates.rules import (
    Derived,
    Unusable,
    affected_by_base,
    derived,
    difference,
    waits_for_claim,
)


class Needed(msgspec.Struct, frozen=True):
    """The template that a pod waits for."""

    wanted: Derived
    exists: bool
    difference: str | None = None
    """How the one there is differs from it."""


class Template(Question[Needed | Unusable | None], frozen=True, kw_only=True, tag="template"):
    """The template that a pod waits for, if it does."""

    pod_uid: str

    def answer(self, picture: Picture) -> Needed | Unusable | None:
        pod = picture.pods.get(self.pod_uid)
        if pod is None or not waits_for_claim(picture, pod):
            return None
        wanted = derived(pod)
        if not isinstance(wanted, Derived):
            return wanted
        name = f"{wanted.namespace}/{wanted.name}"
        existing = picture.plain[TEMPLATES.plural].get(name)
        if existing is None:
            return Needed(wanted, False)
        return Needed(wanted, True, difference(wanted.spec, existing.get("spec")))


class Affected(Question[tuple[str, ...]], frozen=True, kw_only=True, tag="affected"):
    """UIDs of the waiting pods whose base template was replaced."""

    namespace: str
    name: str
    dray_namespace: str
    bases: tuple[str, ...]
    """All base templates as ``namespace/name``."""

    def answer(self, picture: Picture) -> tuple[str, ...]:
        pods = affected_by_base(
            picture.our_pods(), self.namespace, self.name, self.dray_namespace, self.bases
        )
        return tuple(pod.uid for pod in pods)


class Garbage(Question[Due], frozen=True, kw_only=True, tag="garbage"):
    """``namespace/name`` of derived templates to be deleted."""

    after_s: float
    now_s: float
    """Monotonic."""
    since_s: dict[str, float]

    def answer(self, picture: Picture) -> Due:
        timer = Unused(self.after_s, self.since_s)
        return Due(tuple(timer.due(unused_templates(picture), self.now_s)), timer.since_s)

    def polled(self) -> str:
        return "garbage"
