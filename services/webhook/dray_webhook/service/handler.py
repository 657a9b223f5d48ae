"""Answers admission requests: look-ups, decision, trace, event and recording."""

import random
import time
from collections.abc import Callable

import msgspec

from dray.bus.backlog import Backlog
from dray.messages.base import encode
from dray.messages.events import PodRequested
from dray.messages.inputs import MUTATE_POD
from dray.messages.rpc import Lookup, LookupReply
from dray.telemetry import spans
from dray_webhook.decisions.claims import concerns_dray
from dray_webhook.decisions.dispatch import (
    MUTATE_CLAIM,
    MUTATE_GROUP,
    VALIDATE_CLAIM,
    VALIDATE_GROUP,
    VALIDATE_POD,
    VALIDATE_POOL,
    VALIDATE_WORKLOAD,
    decide,
)
from dray_webhook.decisions.injection import AdmissionIds
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import RETRY, AdmissionAnswer, AdmissionRequest
from dray_webhook.decisions.view import View
from dray_webhook.service.derived_templates import DerivedTemplates
from dray_webhook.service.facts_cache import FactsCache
from dray_webhook.service.recorder import ReviewRecorder


class AdmissionHandler:
    """The handlers by path. ``timeout_s`` is the API server's time-out of the call."""

    def __init__(
        self,
        cache: FactsCache,
        backlog: Backlog,
        installation: Installation,
        *,
        source: str,
        sampling_ratio: float = 1.0,
        lookup_timeout_s: float = 0.3,
        draw: Callable[[], float] = random.random,
        recorder: ReviewRecorder | None = None,
        templates: DerivedTemplates | None = None,
    ) -> None:
        """``templates``: None: pods are admitted before their templates exist."""
        self._cache = cache
        self._backlog = backlog
        self._installation = installation
        self._source = source
        self._sampling_ratio = sampling_ratio
        self._lookup_timeout_s = lookup_timeout_s
        self._draw = draw
        self._recorder = recorder
        self._templates = templates

    async def mutate_pod(self, request: AdmissionRequest, *, timeout_s: float) -> AdmissionAnswer:
        """The answer for a pod, after bounded look-ups if it is unresolved at first."""
        started = time.monotonic()
        view = self._cache.view
        if not view.synced:
            return self._not_ready()
        # Only a pod's creation begins a trace.
        begins_trace = request.operation == "CREATE" and not request.dry_run
        sampled = begins_trace and self._draw() < self._sampling_ratio
        with spans.begin("admission", sampled=sampled, kind="server") as span:
            ids = AdmissionIds(request.uid, span.traceparent)
            until = started + min(self._lookup_timeout_s, timeout_s / 2)
            answer = await self._decide(MUTATE_POD, request, view, ids, until)
            if span.recording:
                _describe(span, request, answer)
            if answer.derive is not None and self._templates is not None and not request.dry_run:
                left_s = until - time.monotonic()
                await self._templates.ensure(answer.derive, timeout_s=left_s)
            if answer.requested is not None:
                self._publish(request, answer.requested, started)
        return answer

    async def _decide(
        self, path: str, request: AdmissionRequest, view: View, ids: AdmissionIds, until: float
    ) -> AdmissionAnswer:
        """Decide; while the answer is unresolved, look up and decide again.

        This ends because no look-up is unresolved twice.
        """
        answer = decide(path, request, view, self._installation, ids)
        known: dict[Lookup, LookupReply] = {}
        while answer.unresolved:
            left_s = max(0.0, until - time.monotonic())
            known.update(await self._cache.look_up(answer.unresolved, timeout_s=left_s))
            view = self._cache.view.with_answers(known)
            answer = decide(path, request, view, self._installation, ids)
        # Only the answers for a workload's pods decide; those are recorded.
        if self._recorder is not None and path != VALIDATE_WORKLOAD:
            created = self._cache.facts_created
            self._recorder.record(
                request, view, ids, known, answer, path=path, facts_created=created
            )
        return answer

    async def validate_pool(
        self, request: AdmissionRequest, *, timeout_s: float
    ) -> AdmissionAnswer:
        """The answer for a GPUPool, after one bounded look-up; never a denial."""
        until = time.monotonic() + min(self._lookup_timeout_s, timeout_s / 2)
        ids = AdmissionIds(request.uid, "")
        return await self._decide(VALIDATE_POOL, request, self._cache.view, ids, until)

    async def mutate_group(self, request: AdmissionRequest, *, timeout_s: float) -> AdmissionAnswer:
        """The answer for a Volcano PodGroup, after one bounded look-up; never a denial."""
        return await self._decide_on_group(MUTATE_GROUP, request, timeout_s)

    async def validate_group(
        self, request: AdmissionRequest, *, timeout_s: float
    ) -> AdmissionAnswer:
        """The answer for a Volcano PodGroup or Queue; a denial only after one bounded look-up.
        Nothing is denied before the facts are known."""
        return await self._decide_on_group(VALIDATE_GROUP, request, timeout_s)

    async def _decide_on_group(
        self, path: str, request: AdmissionRequest, timeout_s: float
    ) -> AdmissionAnswer:
        if not self._cache.view.synced:
            return AdmissionAnswer()
        until = time.monotonic() + min(self._lookup_timeout_s, timeout_s / 2)
        ids = AdmissionIds(request.uid, "")
        return await self._decide(path, request, self._cache.view, ids, until)

    async def validate_workload(
        self, request: AdmissionRequest, *, timeout_s: float
    ) -> AdmissionAnswer:
        """The answer for a Deployment, Job or other workload, after one bounded look-up; never a
        denial."""
        if not self._cache.view.synced:
            return AdmissionAnswer()
        until = time.monotonic() + min(self._lookup_timeout_s, timeout_s / 2)
        ids = AdmissionIds(request.uid, "")
        return await self._decide(VALIDATE_WORKLOAD, request, self._cache.view, ids, until)

    async def validate_pod(self, request: AdmissionRequest, *, timeout_s: float) -> AdmissionAnswer:
        """The answer for an annotated pod without a shape."""
        return self._decide_without_lookup(VALIDATE_POD, request)

    async def mutate_claim(self, request: AdmissionRequest, *, timeout_s: float) -> AdmissionAnswer:
        """The answer for a ResourceClaim, whose capacities may be mapped."""
        return self._decide_without_lookup(MUTATE_CLAIM, request)

    async def validate_claim(
        self, request: AdmissionRequest, *, timeout_s: float
    ) -> AdmissionAnswer:
        """The answer for a ResourceClaim or template."""
        if not self._cache.view.synced:
            return self._not_ready() if concerns_dray(request) else AdmissionAnswer()
        return self._decide_without_lookup(VALIDATE_CLAIM, request)

    def _decide_without_lookup(self, path: str, request: AdmissionRequest) -> AdmissionAnswer:
        view, ids = self._cache.view, AdmissionIds(request.uid, "")
        answer = decide(path, request, view, self._installation, ids)
        if self._recorder is not None:
            created = self._cache.facts_created
            self._recorder.record(request, view, ids, {}, answer, path=path, facts_created=created)
        return answer

    def _not_ready(self) -> AdmissionAnswer:
        return AdmissionAnswer(
            allowed=False,
            code=RETRY,
            message=f"dray's webhook is not ready: {self._cache.problem}; try again",
        )

    def _publish(self, request: AdmissionRequest, event: PodRequested, started: float) -> None:
        if request.dry_run:
            return
        took_us = int((time.monotonic() - started) * 1e6)
        self._backlog.offer(
            encode(
                msgspec.structs.replace(event, took_us=took_us),
                source=self._source,
                correlation_id=event.request_id,
                traceparent=event.traceparent,
            )
        )


def _describe(span: spans.Span, request: AdmissionRequest, answer: AdmissionAnswer) -> None:
    """Set the request's attributes on the span."""
    span.set("k8s.namespace.name", request.namespace)
    if request.name:
        span.set("k8s.pod.name", request.name)
    if answer.requested is not None:
        span.set("dray.pool", answer.requested.pool)
        span.set("dray.template", answer.requested.template)
        for name, value in answer.requested.understood.items():
            span.set(f"dray.understood.{name}", value)
    if not answer.allowed:
        span.fail(answer.message)
