"""Admission of pods.

CREATE: parses the annotations, resolves pool, policy and base template, derives the shape and
injects the claim; all errors are reported together. UPDATE: see ``pod_updates``.
"""

from dray.api.errors import InvalidInputError
from dray.api.names import (
    BASE_TEMPLATE,
    DEFAULT_SCHEDULER,
    DRA_CEL_EXPRESSION,
    DRAY_SCHEDULER,
    GANG_ANNOTATIONS,
    GPU_TOPOLOGY,
    PLACEMENT,
    PREFER,
    PREFIX,
    REQUEST_ID,
    SHAPE,
)
from dray.api.pods import Pool
from dray.cel.environment import Mode
from dray.kube.convert import given_by_classes, pod_needs
from dray.messages.events import PodRequested
from dray.messages.facts import TemplateObserved
from dray.messages.rpc import Derive, Lookup
from dray_webhook.decisions.annotations import AnnotationFindings, read_annotations
from dray_webhook.decisions.containers import read_containers
from dray_webhook.decisions.cpu_tasks import admit_cpu_task, is_cpu_task
from dray_webhook.decisions.device_plugin import (
    PluginRequest,
    plugin_conflicts,
    plugin_request,
    without_plugin_resources,
)
from dray_webhook.decisions.gpu_resources import as_annotations, asks_by_resource
from dray_webhook.decisions.groups import NO_GROUP, join_group
from dray_webhook.decisions.injection import (
    NEVER_ON_CREATED_PODS,
    AdmissionIds,
    Injection,
    claim_conflicts,
    container_conflicts,
    foreign_needs,
    inject,
    is_allocated_by_kube_scheduler,
    node_conflicts,
    refers_to_claim,
    scheduler_conflicts,
    share_conflicts,
    uses_of,
)
from dray_webhook.decisions.jsonpatch import difference
from dray_webhook.decisions.pod_updates import restore_injected
from dray_webhook.decisions.pools import Installation, resolve
from dray_webhook.decisions.priorities import class_of
from dray_webhook.decisions.request_builder import ApiFeatures, RequestInput
from dray_webhook.decisions.request_summary import summarize_request
from dray_webhook.decisions.review import (
    DENIED,
    RETRY,
    AdmissionAnswer,
    AdmissionRequest,
    Object,
    annotations_of,
)
from dray_webhook.decisions.riders import admit_rider, asks_for_gpus
from dray_webhook.decisions.selectors import selectors_of
from dray_webhook.decisions.shape import MAX_SHAPE_BYTES, ClaimShape, derive, derived_name
from dray_webhook.decisions.view import View


def admit_pod(
    request: AdmissionRequest, view: View, installation: Installation, ids: AdmissionIds
) -> AdmissionAnswer:
    """The answer of /mutate-pods. If it has ``unresolved``, look these up and decide again."""
    pod = request.object or {}
    asks_by_name = asks_by_resource(pod, installation.gpu_resources)
    is_concerned = _has_dray_annotations(pod) or _has_dray_annotations(request.old_object or {})
    scheduler = (pod.get("spec") or {}).get("schedulerName")
    if not (is_concerned or asks_by_name) and scheduler not in installation.scheduler_names:
        return AdmissionAnswer()
    if request.operation == "UPDATE":
        return restore_injected(pod, request, installation)
    if request.operation != "CREATE":
        return AdmissionAnswer()
    if not asks_by_name and is_cpu_task(pod, installation):
        return admit_cpu_task(request, view, installation, ids)
    if not (asks_by_name or asks_for_gpus(pod)):
        return admit_rider(pod, installation, ids)
    return _PodCreation(pod, request, view, installation, ids).answer()


def refuse_late_annotations(request: AdmissionRequest) -> AdmissionAnswer:
    """The answer of /validate-pods: refuses annotated pods that were not admitted."""
    pod = request.object or {}
    annotations = annotations_of(pod)
    late = [name for name in annotations if name.startswith(PREFIX)]
    is_admitted = SHAPE in annotations or (REQUEST_ID in annotations and not asks_for_gpus(pod))
    if request.operation != "CREATE" or is_admitted or not late:
        return AdmissionAnswer()
    if not asks_for_gpus(pod):
        late = [name for name in late if name in GANG_ANNOTATIONS] or late
    return AdmissionAnswer(
        allowed=False,
        code=DENIED,
        message=(
            f"annotation {min(late)} was added by a mutating webhook that was called after dray's, "
            "so the pod would run without its GPUs: write the annotations on the pod itself, or "
            "give the other MutatingWebhookConfiguration a name that comes before dray's, "
            "because they are called in the order of their names"
        ),
    )


class _PodCreation:
    """The admission of one pod at CREATE; collects all findings."""

    def __init__(
        self,
        pod: Object,
        request: AdmissionRequest,
        view: View,
        installation: Installation,
        ids: AdmissionIds,
    ) -> None:
        self.findings = AnnotationFindings()
        self.original = pod
        pod = without_plugin_resources(pod)
        self.pod = pod = as_annotations(pod, installation.gpu_resources, self.findings)
        self.spec: Object = pod.get("spec") or {}
        self.request = request
        self.scheduler_names = installation.scheduler_names
        self.view = view
        self.ids = ids
        self.annotations = annotations_of(pod)
        self.containers = read_containers(self.annotations, self.spec, self.findings)
        self.asked = read_annotations(
            self.annotations, self.findings, needs_amounts=self.containers.needs_amounts
        )
        self.parts = self.containers.parts(self.asked, self.findings)
        self.group = join_group(pod, self.findings)
        self.found = resolve(self.asked, request.namespace, view, installation, self.findings)

    def answer(self) -> AdmissionAnswer:
        pool, base = self.found.pool, self.found.base
        wanted = self._wanted(pool)
        gated = pool is not None and self._gated(pool)
        self.findings.errors.extend(node_conflicts(self.spec))
        self._check_scheduler(pool)
        self._check_group(pool)
        if pool is None or base is None:
            return self._denial()
        self.findings.errors.extend(
            claim_conflicts(self.spec, base.name, self._other_bases(base.name))
        )
        shape = self._shape(wanted, base, pool)
        shape_text = shape.text if shape else ""
        self._check_size(shape_text, base)
        plugin = self._plugin(pool, base.name, gated=gated)
        uses = uses_of(self.containers, shape) if shape else None
        self.findings.errors.extend(container_conflicts(self.spec, base.name, uses))
        if self.findings.errors:
            return self._denial()
        template = derived_name(base.name, shape_text)
        injection = Injection(
            base.name,
            template,
            shape_text,
            pool,
            gated,
            self.ids,
            group=self.group,
            priority_class=class_of(self.asked.qos, self.view.priority_classes),
            uses=uses,
            plugin=plugin,
        )
        patched = inject(self.pod, injection)
        self._warn(pool, patched)
        return AdmissionAnswer(
            patch=tuple(difference(self.original, patched)),
            warnings=tuple(self.findings.warnings),
            requested=self._event(injection),
            derive=None
            if plugin is not None
            else Derive(
                namespace=self.request.namespace,
                template=template,
                shape=shape_text,
                traceparent=self.ids.traceparent,
            ),
        )

    def _plugin(self, pool: Pool, base: str, *, gated: bool) -> PluginRequest | None:
        """What the containers ask the device plugin for; None: the pod gets a claim."""
        if not self.found.uses_plugin:
            return None
        refers = refers_to_claim(self.spec, base)
        self.findings.errors.extend(
            plugin_conflicts(self.spec, pool, self.containers, gated=gated, refers=refers)
        )
        return plugin_request(self.spec, self.containers, self.asked)

    def _check_scheduler(self, pool: Pool | None) -> None:
        if pool is None:
            return
        asked = [part.asked for part in self.parts]
        conflicts = [*scheduler_conflicts(self.spec, pool), *share_conflicts(asked, pool)]
        if not conflicts:
            return
        self.findings.errors.extend(conflicts)
        lookup = Lookup(kind="pool", name=pool.name)
        if lookup not in self.view.asked:  # its owner may have changed since
            self.found.unresolved.append(lookup)

    def _check_group(self, pool: Pool | None) -> None:
        if pool is None or not is_allocated_by_kube_scheduler(pool):
            return
        if self.group == NO_GROUP or self.group.is_native:
            return
        self.findings.errors.append(
            f'the pod is in PodGroup "{self.group.name}" of Volcano, and GPUPool "{pool.name}" is '
            "owned by kube-scheduler (spec.owner), which does not know such groups: leave the "
            "group out, name one of Kubernetes in spec.schedulingGroup, or name a pool that dray "
            "owns"
        )

    def _other_bases(self, base: str) -> tuple[str, ...]:
        """The other base templates in the pod's namespace."""
        here = self.request.namespace
        return tuple(name for place, name in self.view.templates if place == here and name != base)

    def _wanted(self, pool: Pool | None) -> tuple[RequestInput, ...]:
        """The requests with their selectors; empty if an expression can't be used."""
        wanted = list[RequestInput]()
        language = self.view.language(Mode.NEW)
        for part in self.parts:
            try:
                selectors = selectors_of(part.asked, pool.name if pool else "", language)
            except InvalidInputError as error:
                self.findings.errors.append(str(error))
                return ()
            if not wanted:  # the warnings are the same for all: the pod has one expression
                self.findings.warnings.extend(selectors.warnings)
            wanted.append(RequestInput(part.asked, selectors.expressions, part.container))
        return tuple(wanted)

    def _gated(self, pool: Pool) -> bool:
        """Whether the pod is gated: dray allocates, then kube-scheduler binds.

        This is so on shared nodes, and for needs that dray does not evaluate.
        """
        if is_allocated_by_kube_scheduler(pool):
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
        self, wanted: tuple[RequestInput, ...], base: TemplateObserved, pool: Pool
    ) -> ClaimShape | None:
        """The shape of the claim; None if there are errors."""
        if not wanted or not all(one.asked.states_amounts for one in wanted):
            return None
        form = ApiFeatures(
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
        if (size := len(text.encode())) > MAX_SHAPE_BYTES:
            count = sum(part.asked.count for part in self.parts)
            self.findings.errors.append(
                f"{count} GPUs with these selectors make a claim of {size} bytes: "
                f"expected {MAX_SHAPE_BYTES} at most; shorten {DRA_CEL_EXPRESSION}, or the "
                f'selectors of ResourceClaimTemplate "{base.namespace}/{base.name}"'
            )

    def _warn(self, pool: Pool, patched: Object) -> None:
        scheduler = self.spec.get("schedulerName") or DEFAULT_SCHEDULER
        if scheduler not in (DEFAULT_SCHEDULER, DRAY_SCHEDULER, *self.scheduler_names):
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
        wishes = (PREFER, PLACEMENT, GPU_TOPOLOGY) if is_allocated_by_kube_scheduler(pool) else ()
        self.findings.warnings.extend(
            f"annotation {name} has no effect: kube-scheduler, which owns GPUPool "
            f'"{pool.name}", takes the first card that fits'
            for name in wishes
            if name in self.annotations
        )
        self.findings.warnings.extend(
            f"annotation {name} is written by dray only; yours was removed"
            for name in NEVER_ON_CREATED_PODS
            if name in self.annotations
        )

    def _denial(self) -> AdmissionAnswer:
        errors = self.findings.errors
        name = self.request.name or (self.pod.get("metadata") or {}).get("generateName", "") + "…"
        head = f'pod "{name}" can\'t get its GPUs: '
        if len(errors) == 1:
            message = head + errors[0]
        else:
            listed = "\n".join(f"{number}. {error}" for number, error in enumerate(errors, 1))
            message = f"{head}{len(errors)} errors\n{listed}"
        return AdmissionAnswer(
            allowed=False,
            message=message,
            code=RETRY if self.view.unanswered else DENIED,
            warnings=tuple(self.findings.warnings),
            unresolved=tuple(dict.fromkeys(self.found.unresolved)),
        )

    def _event(self, injection: Injection) -> PodRequested:
        metadata = self.pod.get("metadata") or {}
        return PodRequested(
            request_id=self.ids.request_id,
            namespace=self.request.namespace,
            name=self.request.name or metadata.get("name", ""),
            pool=injection.pool.name,
            template=injection.template,
            understood=summarize_request(self.asked, self.found, self.parts, gated=injection.gated),
            traceparent=self.ids.traceparent,
        )


def _has_dray_annotations(pod: Object) -> bool:
    return any(name.startswith(PREFIX) for name in annotations_of(pod))
