"""Pods under admission: an AdmissionReview in, an answer out. Pure.

CREATE: annotations are read, pool, policy and base template resolved, the shape derived and
the claim injected; whatever is wrong is said at once. UPDATE: what was admitted stays
(``updates``).
"""

from dray.cel.environment import Mode
from dray.domain.errors import InvalidInputError
from dray.domain.names import (
    BASE_TEMPLATE,
    DEFAULT_SCHEDULER,
    DRA_CEL_EXPRESSION,
    DRAY_SCHEDULER,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
    PREFIX,
    SHAPE,
)
from dray.domain.pods import Pool
from dray.kube.convert import given_by_classes, pod_needs
from dray.messages.events import PodRequested
from dray.messages.facts import TemplateObserved
from dray.messages.rpc import Lookup
from dray_webhook.annotations import Asked, Findings, read_annotations
from dray_webhook.injection import (
    NEVER_ON_PODS_AT_BIRTH,
    Ids,
    Injection,
    claim_conflicts,
    dray_binds,
    foreign_needs,
    inject,
    is_kube_schedulers,
    node_conflicts,
    scheduler_conflicts,
)
from dray_webhook.jsonpatch import difference
from dray_webhook.pools import Resolution, Rules, resolve
from dray_webhook.review import DENIED, UNSURE, Answer, Object, Request, annotations_of
from dray_webhook.selectors import selectors_of
from dray_webhook.shape import LONGEST_SHAPE, Form, canonical, derive, derived_name
from dray_webhook.updates import keep_admitted
from dray_webhook.view import View


def admit_pod(request: Request, view: View, rules: Rules, ids: Ids) -> Answer:
    """The answer for a pod. A denial with ``doubts`` is worth asking again with look-ups."""
    pod = request.object or {}
    if not _ours(pod) and not _ours(request.old_object or {}):
        return Answer()
    if request.operation == "UPDATE":
        return keep_admitted(pod, request, rules)
    if request.operation != "CREATE":
        return Answer()
    return _Admission(pod, request, view, rules, ids).answer()


def refuse_unadmitted(request: Request) -> Answer:
    """The answer for a pod at the end of CREATE that has our annotations and no shape."""
    annotations = annotations_of(request.object or {})
    late = [name for name in annotations if name.startswith(PREFIX)]
    if request.operation != "CREATE" or SHAPE in annotations or not late:
        return Answer()
    return Answer(
        allowed=False,
        code=DENIED,
        message=(
            f"annotation {min(late)} was added by a mutating webhook after dray's had its turn, "
            "so the pod would run without its GPUs: write the annotations on the pod itself, or "
            "give the other MutatingWebhookConfiguration a name that comes before dray's, "
            "because they are called in the order of their names"
        ),
    )


class _Admission:
    """One pod at CREATE: findings gather until it is known whether it gets in."""

    def __init__(self, pod: Object, request: Request, view: View, rules: Rules, ids: Ids) -> None:
        self.pod = pod
        self.spec: Object = pod.get("spec") or {}
        self.request = request
        self.view = view
        self.ids = ids
        self.findings = Findings()
        self.annotations = annotations_of(pod)
        self.asked = read_annotations(self.annotations, self.findings)
        self.found = resolve(self.asked, request.namespace, view, rules, self.findings)

    def answer(self) -> Answer:
        pool, base = self.found.pool, self.found.base
        selectors = self._selectors(pool)
        gated = pool is not None and self._gated(pool)
        self.findings.errors.extend(node_conflicts(self.spec))
        self._check_scheduler(pool)
        if pool is None or base is None:
            return self._denial()
        self.findings.errors.extend(
            claim_conflicts(self.spec, base.name, self._other_bases(base.name))
        )
        shape_text = self._shape(selectors, base, pool)
        if self.findings.errors:
            return self._denial()
        template = derived_name(base.name, shape_text)
        injection = Injection(base.name, template, shape_text, pool, gated, self.ids)
        patched = inject(self.pod, injection)
        self._warn(pool, patched)
        return Answer(
            patch=tuple(difference(self.pod, patched)),
            warnings=tuple(self.findings.warnings),
            requested=self._event(injection),
        )

    def _check_scheduler(self, pool: Pool | None) -> None:
        if pool is None or not (conflicts := list(scheduler_conflicts(self.spec, pool))):
            return
        self.findings.errors.extend(conflicts)
        lookup = Lookup(kind="pool", name=pool.name)
        if lookup not in self.view.asked:  # its owner may have changed a moment ago
            self.found.doubts.append(lookup)

    def _other_bases(self, base: str) -> tuple[str, ...]:
        """Base templates that the pod can refer to, but for its own."""
        here = self.request.namespace
        return tuple(name for place, name in self.view.templates if place == here and name != base)

    def _selectors(self, pool: Pool | None) -> tuple[str, ...]:
        try:
            language = self.view.language(Mode.NEW)
            selectors = selectors_of(self.asked, pool.name if pool else "", language)
        except InvalidInputError as error:
            self.findings.errors.append(str(error))
            return ()
        self.findings.warnings.extend(selectors.warnings)
        return selectors.expressions

    def _gated(self, pool: Pool) -> bool:
        """Whether dray allocates first and kube-scheduler binds: nodes that it shares, or needs
        that dray doesn't read."""
        if is_kube_schedulers(pool):
            return False
        try:
            base = self.found.base.name if self.found.base else BASE_TEMPLATE
            needs = pod_needs(foreign_needs(self.spec, base))
        except InvalidInputError as error:
            self.findings.errors.append(f"spec of the pod: {error}")
            return False
        unread = (*needs.unread, *given_by_classes(needs, self.view.classes.values()))
        gated = not pool.dedicated or bool(unread)
        if gated and not self.view.cluster.device_taints:
            why = (
                f"the pod has needs that only kube-scheduler reads ({', '.join(unread)})"
                if pool.dedicated
                else f'GPUPool "{pool.name}" is on shared nodes'
            )
            self.findings.errors.append(
                "this API server drops device taints (DRADeviceTaints is off), which keep "
                "kube-scheduler from allocating dray's devices; without them only dedicated pools "
                f"work, and {why}: name a pool with spec.dedicated: true"
                + (", and leave out these needs" if pool.dedicated else "")
            )
        return gated

    def _shape(self, selectors: tuple[str, ...], base: TemplateObserved, pool: Pool) -> str:
        """Canonical JSON; empty where an error was found."""
        if self.asked.tflops is None or self.asked.vram is None:
            return ""
        form = Form(
            shares_devices=self.view.cluster.consumable_capacity,
            counts_shareable_devices=self.view.counts_shareable_devices,
            language=self.view.language(Mode.NEW),
        )
        try:
            text = canonical(derive(base, self.asked, pool, selectors, form))
        except InvalidInputError as error:
            self.findings.errors.append(str(error))
            return ""
        if (size := len(text.encode())) > LONGEST_SHAPE:
            self.findings.errors.append(
                f"{self.asked.count} GPUs with these selectors make a claim of {size} bytes: "
                f"expected {LONGEST_SHAPE} at most; shorten {DRA_CEL_EXPRESSION}, or the "
                f'selectors of ResourceClaimTemplate "{base.namespace}/{base.name}"'
            )
        return text

    def _warn(self, pool: Pool, patched: Object) -> None:
        scheduler = self.spec.get("schedulerName") or DEFAULT_SCHEDULER
        if scheduler not in (DEFAULT_SCHEDULER, DRAY_SCHEDULER):
            self.findings.warnings.append(
                f'spec.schedulerName "{scheduler}" is replaced by '
                f'"{patched["spec"]["schedulerName"]}", which places pods of GPUPool "{pool.name}"'
            )
        if not self.view.cluster.consumable_capacity:
            self.findings.warnings.append(
                "this API server does not share devices (DRAConsumableCapacity is off): the pod "
                "takes whole cards, whatever tflops-request and vram-request say"
            )
        self.findings.warnings.extend(
            f"annotation {name} is written by dray only; yours was removed"
            for name in NEVER_ON_PODS_AT_BIRTH
            if name in self.annotations
        )

    def _denial(self) -> Answer:
        errors = self.findings.errors
        name = self.request.name or (self.pod.get("metadata") or {}).get("generateName", "") + "…"
        head = f'pod "{name}" can\'t get its GPUs: '
        if len(errors) == 1:
            message = head + errors[0]
        else:
            listed = "\n".join(f"{number}. {error}" for number, error in enumerate(errors, 1))
            message = f"{head}{len(errors)} errors\n{listed}"
        return Answer(
            allowed=False,
            message=message,
            code=UNSURE if self.view.unanswered else DENIED,
            warnings=tuple(self.findings.warnings),
            doubts=tuple(dict.fromkeys(self.found.doubts)),
        )

    def _event(self, injection: Injection) -> PodRequested:
        metadata = self.pod.get("metadata") or {}
        return PodRequested(
            request_id=self.ids.request_id,
            namespace=self.request.namespace,
            name=self.request.name or metadata.get("name", ""),
            pool=injection.pool.name,
            template=injection.template,
            understood=understood(self.asked, self.found, gated=injection.gated),
            traceparent=self.ids.traceparent,
        )


def understood(asked: Asked, found: Resolution, *, gated: bool) -> dict[str, str]:
    """What was read, in words for timelines."""
    pool = found.pool.name if found.pool else ""
    words = {
        "gpus": str(asked.count),
        "tflops": str(asked.tflops),
        "vram": str(asked.vram),
        "pool": pool if asked.pool else f"{pool} (default)",
        "model": asked.model,
        "qos": asked.qos,
        "tflops-limit": str(asked.tflops_limit) if asked.tflops_limit else "",
        "vram-limit": str(asked.vram_limit) if asked.vram_limit else "",
        "selector": "custom" if asked.expression else "generated",
        "dra": found.dra_from,
        "base": f"{found.base.namespace}/{found.base.name}" if found.base else "",
        "binder": OWNER_DRAY
        if found.pool and dray_binds(found.pool, gated)
        else OWNER_KUBE_SCHEDULER,
        "allocator": OWNER_KUBE_SCHEDULER if found.pool and is_kube_schedulers(found.pool) else "",
    }
    return {name: value for name, value in words.items() if value}


def _ours(pod: Object) -> bool:
    return any(name.startswith(PREFIX) for name in annotations_of(pod))
