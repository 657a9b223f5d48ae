"""Pods under admission: an AdmissionReview in, an answer out. Pure.

CREATE: annotations are read, pool, policy and base template resolved, the shape derived and
the claim injected; whatever is wrong is reported at once. UPDATE: what dray put in stays
(``updates``).
"""

from dray.cel.environment import Mode
from dray.domain.errors import InvalidInputError
from dray.domain.names import (
    BASE_TEMPLATE,
    DEFAULT_SCHEDULER,
    DRA_CEL_EXPRESSION,
    DRAY_SCHEDULER,
    GPU_TOPOLOGY,
    PLACEMENT,
    PREFER,
    PREFIX,
    SHAPE,
)
from dray.domain.pods import Pool
from dray.kube.convert import given_by_classes, pod_needs
from dray.messages.events import PodRequested
from dray.messages.facts import TemplateObserved
from dray.messages.rpc import Lookup
from dray_webhook.annotations import Findings, read_annotations
from dray_webhook.completing import Form, Wanted
from dray_webhook.containers import read_containers
from dray_webhook.injection import (
    NEVER_ON_PODS_AT_BIRTH,
    Ids,
    Injection,
    claim_conflicts,
    container_conflicts,
    foreign_needs,
    inject,
    is_kube_schedulers,
    node_conflicts,
    scheduler_conflicts,
    share_conflicts,
    uses_of,
)
from dray_webhook.jsonpatch import difference
from dray_webhook.pools import Rules, resolve
from dray_webhook.review import DENIED, UNSURE, Answer, Object, Request, annotations_of
from dray_webhook.selectors import selectors_of
from dray_webhook.shape import LONGEST_SHAPE, Shape, derive, derived_name
from dray_webhook.understood import understood
from dray_webhook.updates import put_back
from dray_webhook.view import View


def admit_pod(request: Request, view: View, rules: Rules, ids: Ids) -> Answer:
    """The answer for a pod. A denial with ``doubts`` is worth asking again with look-ups."""
    pod = request.object or {}
    if not _ours(pod) and not _ours(request.old_object or {}):
        return Answer()
    if request.operation == "UPDATE":
        return put_back(pod, request, rules)
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
        self.containers = read_containers(self.annotations, self.spec, self.findings)
        self.asked = read_annotations(
            self.annotations, self.findings, needs_amounts=self.containers.needs_amounts
        )
        self.parts = self.containers.parts(self.asked, self.findings)
        self.found = resolve(self.asked, request.namespace, view, rules, self.findings)

    def answer(self) -> Answer:
        pool, base = self.found.pool, self.found.base
        wanted = self._wanted(pool)
        gated = pool is not None and self._gated(pool)
        self.findings.errors.extend(node_conflicts(self.spec))
        self._check_scheduler(pool)
        if pool is None or base is None:
            return self._denial()
        self.findings.errors.extend(
            claim_conflicts(self.spec, base.name, self._other_bases(base.name))
        )
        shape = self._shape(wanted, base, pool)
        shape_text = shape.text if shape else ""
        self._check_size(shape_text, base)
        uses = uses_of(self.containers, shape) if shape else None
        self.findings.errors.extend(container_conflicts(self.spec, base.name, uses))
        if self.findings.errors:
            return self._denial()
        template = derived_name(base.name, shape_text)
        injection = Injection(base.name, template, shape_text, pool, gated, self.ids, uses)
        patched = inject(self.pod, injection)
        self._warn(pool, patched)
        return Answer(
            patch=tuple(difference(self.pod, patched)),
            warnings=tuple(self.findings.warnings),
            requested=self._event(injection),
        )

    def _check_scheduler(self, pool: Pool | None) -> None:
        if pool is None:
            return
        asked = [part.asked for part in self.parts]
        conflicts = [*scheduler_conflicts(self.spec, pool), *share_conflicts(asked, pool)]
        if not conflicts:
            return
        self.findings.errors.extend(conflicts)
        lookup = Lookup(kind="pool", name=pool.name)
        if lookup not in self.view.asked:  # its owner may have changed a moment ago
            self.found.doubts.append(lookup)

    def _other_bases(self, base: str) -> tuple[str, ...]:
        """Base templates that the pod can refer to, but for its own."""
        here = self.request.namespace
        return tuple(name for place, name in self.view.templates if place == here and name != base)

    def _wanted(self, pool: Pool | None) -> tuple[Wanted, ...]:
        """The requests with their selectors; none where an expression can't be used."""
        wanted = list[Wanted]()
        language = self.view.language(Mode.NEW)
        for part in self.parts:
            try:
                selectors = selectors_of(part.asked, pool.name if pool else "", language)
            except InvalidInputError as error:
                self.findings.errors.append(str(error))
                return ()
            if not wanted:  # they speak of the pod's expression, and there is one
                self.findings.warnings.extend(selectors.warnings)
            wanted.append(Wanted(part.asked, selectors.expressions, part.container))
        return tuple(wanted)

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

    def _shape(
        self, wanted: tuple[Wanted, ...], base: TemplateObserved, pool: Pool
    ) -> Shape | None:
        """What the claim is made from; None where an error was found."""
        if not wanted or not all(one.asked.says_how_much for one in wanted):
            return None
        form = Form(
            shares_devices=self.view.cluster.consumable_capacity,
            counts_shareable_devices=self.view.counts_shareable_devices,
            language=self.view.language(Mode.NEW),
        )
        try:
            return derive(base, wanted, pool, form)
        except InvalidInputError as error:
            self.findings.errors.append(str(error))
            return None

    def _check_size(self, text: str, base: TemplateObserved) -> None:
        if (size := len(text.encode())) > LONGEST_SHAPE:
            count = sum(part.asked.count for part in self.parts)
            self.findings.errors.append(
                f"{count} GPUs with these selectors make a claim of {size} bytes: "
                f"expected {LONGEST_SHAPE} at most; shorten {DRA_CEL_EXPRESSION}, or the "
                f'selectors of ResourceClaimTemplate "{base.namespace}/{base.name}"'
            )

    def _warn(self, pool: Pool, patched: Object) -> None:
        scheduler = self.spec.get("schedulerName") or DEFAULT_SCHEDULER
        if scheduler not in (DEFAULT_SCHEDULER, DRAY_SCHEDULER):
            self.findings.warnings.append(
                f'spec.schedulerName "{scheduler}" is replaced by '
                f'"{patched["spec"]["schedulerName"]}", which places pods of GPUPool "{pool.name}"'
            )
        whole = all(part.asked.whole for part in self.parts)
        if not self.view.cluster.consumable_capacity and not whole:
            self.findings.warnings.append(
                "this API server does not share devices (DRAConsumableCapacity is off): the pod "
                "takes whole cards, whatever tflops-request and vram-request say"
            )
        wishes = (PREFER, PLACEMENT, GPU_TOPOLOGY) if is_kube_schedulers(pool) else ()
        self.findings.warnings.extend(
            f"annotation {name} has no effect: kube-scheduler, which owns GPUPool "
            f'"{pool.name}", takes the first card that fits'
            for name in wishes
            if name in self.annotations
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
            understood=understood(self.asked, self.found, self.parts, gated=injection.gated),
            traceparent=self.ids.traceparent,
        )


def _ours(pod: Object) -> bool:
    return any(name.startswith(PREFIX) for name in annotations_of(pod))
