"""Requests to the pure decisions and back: look-ups, the trace's start, the event."""

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
from dray_webhook.cache import Cache
from dray_webhook.claims import concerns_dray
from dray_webhook.injection import Ids
from dray_webhook.inputs import (
    MUTATE_CLAIM,
    VALIDATE_CLAIM,
    VALIDATE_POD,
    VALIDATE_POOL,
    Inputs,
    decide,
)
from dray_webhook.pools import Rules
from dray_webhook.review import UNSURE, Answer, Request
from dray_webhook.view import View


class Webhook:
    """What the paths answer. ``timeout_s`` is what the API server grants the call."""

    def __init__(
        self,
        cache: Cache,
        backlog: Backlog,
        rules: Rules,
        *,
        source: str,
        sampling_ratio: float = 1.0,
        lookup_timeout_s: float = 0.3,
        draw: Callable[[], float] = random.random,
        inputs: Inputs | None = None,
    ) -> None:
        self._cache = cache
        self._backlog = backlog
        self._rules = rules
        self._source = source
        self._sampling_ratio = sampling_ratio
        self._lookup_timeout_s = lookup_timeout_s
        self._draw = draw
        self._inputs = inputs

    async def mutate_pod(self, request: Request, *, timeout_s: float) -> Answer:
        """The answer for a pod, after one bounded look-up where it would be negative."""
        started = time.monotonic()
        view = self._cache.view
        if not view.synced:
            return self._not_ready()
        # An update or a dry run is no pod's beginning.
        begins = request.operation == "CREATE" and not request.dry_run
        sampled = begins and self._draw() < self._sampling_ratio
        with spans.begin("admission", sampled=sampled, kind="server") as span:
            ids = Ids(request.uid, span.traceparent)
            until = started + min(self._lookup_timeout_s, timeout_s / 2)
            answer = await self._decide(MUTATE_POD, request, view, ids, until)
            if span.recording:
                _describe(span, request, answer)
            if answer.requested is not None:
                self._publish(request, answer.requested, started)
        return answer

    async def _decide(
        self, path: str, request: Request, view: View, ids: Ids, until: float
    ) -> Answer:
        """Decide, and while that is doubtful, look up and decide again.

        It ends: a doubt that was looked up is none any more.
        """
        answer = decide(path, request, view, self._rules, ids)
        known: dict[Lookup, LookupReply] = {}
        while answer.doubts:
            left_s = max(0.0, until - time.monotonic())
            known.update(await self._cache.look_up(answer.doubts, timeout_s=left_s))
            view = self._cache.view.with_answers(known)
            answer = decide(path, request, view, self._rules, ids)
        if self._inputs is not None:
            created = self._cache.facts_created
            self._inputs.record(request, view, ids, known, answer, path=path, facts_created=created)
        return answer

    async def validate_pool(self, request: Request, *, timeout_s: float) -> Answer:
        """The answer for a GPUPool, after one bounded look-up: a warning at most."""
        until = time.monotonic() + min(self._lookup_timeout_s, timeout_s / 2)
        ids = Ids(request.uid, "")
        return await self._decide(VALIDATE_POOL, request, self._cache.view, ids, until)

    async def validate_pod(self, request: Request, *, timeout_s: float) -> Answer:
        """The answer for an annotated pod that ``mutate_pod`` never saw so."""
        return self._decide_at_once(VALIDATE_POD, request)

    async def mutate_claim(self, request: Request, *, timeout_s: float) -> Answer:
        """The answer for a ResourceClaim that may need mapping."""
        return self._decide_at_once(MUTATE_CLAIM, request)

    async def validate_claim(self, request: Request, *, timeout_s: float) -> Answer:
        """The answer for a ResourceClaim or template."""
        if not self._cache.view.synced:
            return self._not_ready() if concerns_dray(request) else Answer()
        return self._decide_at_once(VALIDATE_CLAIM, request)

    def _decide_at_once(self, path: str, request: Request) -> Answer:
        view, ids = self._cache.view, Ids(request.uid, "")
        answer = decide(path, request, view, self._rules, ids)
        if self._inputs is not None:
            created = self._cache.facts_created
            self._inputs.record(request, view, ids, {}, answer, path=path, facts_created=created)
        return answer

    def _not_ready(self) -> Answer:
        return Answer(
            allowed=False,
            code=UNSURE,
            message=f"dray's webhook is not ready: {self._cache.problem}; try again",
        )

    def _publish(self, request: Request, event: PodRequested, started: float) -> None:
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


def _describe(span: spans.Span, request: Request, answer: Answer) -> None:
    """What the pod asked for, as attributes of its admission."""
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
