"""Watches Kubernetes and the bus, and adds what it sees to each pod's story.

The time of a Kubernetes object is when the API server's watch first showed it; the time of a
message is the stream's. In the local stack, both are from this machine's clock.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from dray.api import names
from dray.bus.ports import Bus, StreamMissingError
from dray.bus.topology import EVENTS_STREAM, FACTS_STREAM
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    PODS,
    TEMPLATES,
    Changed,
    Kube,
    Listed,
    Object,
    Resource,
)
from dray.messages.base import ce_type, decode, subject_prefix
from dray.messages.decisions import Decided, PodDecision, Waiting, decode_record, log_stream
from dray.messages.events import ClaimPrepared, PodRequested
from dray.messages.facts import DomainObserved
from dray.reasons import in_words
from dray_cli.demo.story import Story
from dray_cli.text import decided_lines, env_lines, understood_text

_STREAM_RETRY_S = 0.2


class DemoCollector:
    """Follows the given pods until closed."""

    def __init__(self, kube: Kube, bus: Bus) -> None:
        self._kube = kube
        self._bus = bus
        self._stories: dict[tuple[str, str], Story] = {}
        self._templates: dict[tuple[str, str], float] = {}
        self._bind_requests: dict[str, Object] = {}
        self._early: dict[str, list[Callable[[Story], None]]] = defaultdict(list)
        """Observations about pods that the watch has not shown yet, by uid or request id."""
        self._following: set[str] = set()
        self._changed = asyncio.Event()

    def follow(self, namespace: str, name: str) -> Story:
        """Begin a pod's story now, just before the pod is created."""
        story = Story(namespace, name, time.time())
        self._stories[namespace, name] = story
        return story

    def story(self, namespace: str, name: str) -> Story:
        """The timeline of a followed pod so far. Raises KeyError for others."""
        return self._stories[namespace, name]

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until ``condition`` holds; False if it did not within ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Watch everything until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(PODS, self._add_pod))
            group.create_task(self._watch(CLAIMS, self._add_claim))
            group.create_task(self._watch(TEMPLATES, self._add_template))
            group.create_task(self._watch(BIND_REQUESTS, self._add_bind_request))
            group.create_task(self._lasting(self._read_events))
            group.create_task(self._lasting(lambda: self._read_domains(group)))

    async def _watch(self, resource: Resource, see: Callable[[Object, float], None]) -> None:
        async for event in self._kube.watch(resource):
            objects = event.objects if isinstance(event, Listed) else (event.object,)
            if isinstance(event, Listed | Changed):
                for obj in objects:
                    see(obj, time.time())
            self._changed.set()

    def _add_pod(self, pod: Object, now: float) -> None:
        metadata, status = pod["metadata"], pod.get("status", {})
        story = self._stories.get((metadata["namespace"], metadata["name"]))
        if story is None or (story.uid and story.uid != metadata["uid"]):
            return
        annotations = metadata.get("annotations", {})
        story.uid = metadata["uid"]
        story.request_id = annotations.get(names.REQUEST_ID, "")
        story.trace_id = (annotations.get(names.TRACEPARENT, "").split("-") + [""] * 2)[1]
        for key in (story.uid, story.request_id):
            for tell in self._early.pop(key, ()):
                tell(story)
        if story.uid in self._bind_requests:
            _add_binding(story, self._bind_requests[story.uid])
        for reference in pod["spec"].get("resourceClaims", []):
            template = reference.get("resourceClaimTemplateName", "")
            seen = self._templates.get((story.namespace, template))
            if seen is not None:
                story.saw("template", seen, template)
        if node := pod["spec"].get("nodeName"):
            story.saw("bound", now, f"to {node}")
        if status.get("phase") == "Running":
            story.saw("running", now, "every container is running")

    def _add_claim(self, claim: Object, now: float) -> None:
        metadata = claim["metadata"]
        allocation = claim.get("status", {}).get("allocation")
        for owner in metadata.get("ownerReferences", []):
            self._tell(owner["uid"], "claim", now, metadata["name"])
            if allocation:
                count = len(allocation["devices"]["results"])
                text = f"ResourceClaim.status: {count} device{'s' if count > 1 else ''}"
                self._tell(owner["uid"], "committed", now, text)

    def _add_template(self, template: Object, now: float) -> None:
        metadata = template["metadata"]
        self._templates.setdefault((metadata["namespace"], metadata["name"]), now)

    def _add_bind_request(self, request: Object, now: float) -> None:
        uid = request.get("spec", {}).get("podUID", "")
        self._bind_requests[uid] = request
        for story in self._stories.values():
            if story.uid == uid:
                _add_binding(story, request)

    async def _lasting(self, read: Callable[[], Awaitable[None]]) -> None:
        """Call ``read`` again whenever it ends: a lost stream is recreated."""
        while True:
            with suppress(StreamMissingError):
                await read()
            await asyncio.sleep(_STREAM_RETRY_S)

    async def _read_events(self) -> None:
        async for delivered in self._bus.read(EVENTS_STREAM):
            kind = delivered.headers.get("ce-type", "")
            at = delivered.time_unix_s
            if kind == ce_type(PodRequested):
                requested = decode(delivered, PodRequested)
                text = understood_text(requested.understood)
                text += f"  (webhook {requested.took_us / 1000:.1f} ms)"
                self._tell(requested.request_id, "admitted", at, text)
            elif kind == ce_type(ClaimPrepared):
                self._add_prepared(decode(delivered, ClaimPrepared))
            self._changed.set()

    def _add_prepared(self, prepared: ClaimPrepared) -> None:
        details = (*prepared.cdi_device_ids, *env_lines(prepared.env))
        text = f"on {prepared.node}  (node-agent {prepared.took_us / 1000:.1f} ms)"
        for story in self._stories.values():
            claim = story.steps.get("claim")
            if story.namespace == prepared.namespace and claim and claim.text == prepared.name:
                story.saw("prepared", prepared.now_unix_s, text, details)

    async def _read_domains(self, group: asyncio.TaskGroup) -> None:
        subject = f"{subject_prefix(DomainObserved)}.>"
        async for delivered in self._bus.read(FACTS_STREAM, subjects=[subject]):
            fact = decode(delivered, DomainObserved)
            stream = log_stream(fact.domain, fact.epoch)
            if not fact.deleted and stream not in self._following:
                self._following.add(stream)
                group.create_task(self._read_log(stream))

    async def _read_log(self, stream: str) -> None:
        try:
            async for delivered in self._bus.read(stream):
                record = decode_record(delivered.payload)
                self._add_record(record, delivered.time_unix_s)
        except (StreamMissingError, msgspec.MsgspecError):
            return  # the log was lost or is of another version; a new epoch is a new stream

    def _add_record(self, record: object, at: float) -> None:
        match record:
            case Decided():
                for pod in record.pods:
                    text, details = _decision(pod, record.writer)
                    self._tell(pod.pod_uid, "decided", at, text, details)
            case Waiting():
                text = in_words(record.reasons).replace("\n", "; ")
                for one in record.by_pod():
                    self._tell(one.pod_uid, "waiting", at, text)
        self._changed.set()

    def _tell(
        self, key: str, step: str, at: float, text: str, details: tuple[str, ...] = ()
    ) -> None:
        for story in self._stories.values():
            if key and key in (story.uid, story.request_id):
                story.saw(step, at, text, details)
                return
        self._early[key].append(lambda story: story.saw(step, at, text, details))


def _add_binding(story: Story, request: Object) -> None:
    story.binder = request.get("spec", {}).get("binder", "")
    story.bind_phase = request.get("status", {}).get("phase", "")


def _decision(pod: PodDecision, writer: str) -> tuple[str, tuple[str, ...]]:
    how = f"({writer}, {pod.took_us} µs, {pod.considered_devices} devices considered)"
    return f"node {pod.node}  {how}", decided_lines(pod)
