"""The quick start on a running stack: apply, show each pod, check, explain, make room."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dray.api.errors import InvalidInputError
from dray.bus.ports import Bus
from dray.kube.ports import EVENTS, PODS, AlreadyExistsError, Kube
from dray_cli.demo.collector import DemoCollector
from dray_cli.demo.indicators import Indicators, check
from dray_cli.demo.manifests import Manifest, read_manifests
from dray_cli.demo.story import Story
from dray_cli.explain import fetch_explanation
from dray_cli.gpu_names import names_in
from dray_cli.text import abbreviated, columns, wrapped

_PLACED_TIMEOUT_S = 45.0
_FOLLOWS_WITHIN_S = 20.0
"""Time-out for what is written later, off the critical path: annotation, events, explanation."""
_WAITING_FILES = "*cannot-fit.yaml"
"""Files of pods that can't fit while the others run."""
_WAITING_EVENT = "GPUWaiting"
"""Reason of the event that says why a pod waits."""
_MAKES_ROOM = "demo.dray.dev/fits-after-deleting"
"""Annotation of such a pod: NAMESPACE/NAME of the pod whose deletion lets it fit."""


@dataclass(slots=True)
class DemoReport:
    """What the demo found, printed as it goes and as JSON at the end."""

    stories: list[Story] = field(default_factory=list)
    indicators: list[Indicators] = field(default_factory=list)
    waited: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Demo:
    """The quick start on a running stack."""

    def __init__(self, kube: Kube, bus: Bus, examples: Path, say: Callable[[str], None]) -> None:
        self._kube = kube
        self._collector = DemoCollector(kube, bus)
        self._examples = examples
        self._say = say
        self.report = DemoReport()

    async def run(self) -> DemoReport:
        """Apply, watch, check; the report says what failed."""
        watching = asyncio.create_task(self._collector.run(), name="collector")
        try:
            await self._placed_pods()
            await self._waiting_pods()
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        return self.report

    async def _placed_pods(self) -> None:
        self._say("\nApplying the example, in the order of the user guide")
        manifests = [
            manifest
            for manifest in read_manifests(self._examples)
            if not Path(manifest.file).match(_WAITING_FILES)
        ]
        stories = [story for manifest in manifests if (story := await self._apply(manifest))]
        await self._until_running(stories)
        await self._check(stories)

    async def _waiting_pods(self) -> None:
        for manifest in read_manifests(self._examples, _WAITING_FILES):
            self._say("\nA pod that can't fit")
            story = await self._apply(manifest)
            if story is None:
                continue
            await self._explain_waiting(story)
            await self._make_room(manifest)
            await self._until_running([story])
            await self._check([story])

    async def _apply(self, manifest: Manifest) -> Story | None:
        metadata = manifest.object["metadata"]
        story = None
        if manifest.resource == PODS:
            story = self._collector.follow(manifest.namespace, metadata["name"])
            self.report.stories.append(story)
        await self._create_or_update(manifest)
        how = "  (through dray convert)" if manifest.converted else ""
        self._say(wrapped(f"  {manifest.file:<28} {manifest.title}{how}", columns()))
        return story

    async def _create_or_update(self, manifest: Manifest) -> None:
        """Some objects are in two files: the later file changes the object of the earlier one."""
        try:
            await self._kube.create(manifest.resource, manifest.object, manifest.namespace)
        except AlreadyExistsError:
            name = manifest.object["metadata"]["name"]
            await self._kube.patch(manifest.resource, name, manifest.object, manifest.namespace)

    async def _until_running(self, stories: list[Story]) -> None:
        done = await self._collector.until(
            lambda: all(story.is_complete for story in stories), _PLACED_TIMEOUT_S
        )
        for story in stories:
            names = await names_in(self._kube, "\n".join(one.text for one in story.in_order()))
            await self._say_short("\n" + "\n".join(story.lines(columns(), names.shortened)))
            if not done and story.missing:
                missing = ", ".join(story.missing)
                self._fail(f"pod {story.namespace}/{story.name} did not get to: {missing}")
                await self._say_why(story)

    async def _check(self, stories: list[Story]) -> None:
        self._say("\nSuccess indicators (user guide §3.5)")
        for story in stories:
            found = await self._indicators(story)
            self.report.indicators.append(found)
            self._say(found.line())
            if not found.all_hold:
                self._fail(f"pod {story.namespace}/{story.name}: not every indicator holds")

    async def _indicators(self, story: Story) -> Indicators:
        """The indicators. Waits a while for annotation and event, written off the critical path."""
        deadline = time.monotonic() + _FOLLOWS_WITHIN_S
        while True:
            found = await check(self._kube, story.namespace, story.name)
            if found.all_hold or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.1)

    async def _explain_waiting(self, story: Story) -> None:
        if not await self._collector.until(lambda: "waiting" in story.steps, _PLACED_TIMEOUT_S):
            self._fail(f"pod {story.namespace}/{story.name} was expected to wait, and does not")
            return
        deadline = time.monotonic() + _FOLLOWS_WITHIN_S
        explanation = await fetch_explanation(self._kube, story.namespace, story.name)
        while not explanation.reasons and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
            explanation = await fetch_explanation(self._kube, story.namespace, story.name)
        if not explanation.reasons:
            self._fail(f"pod {story.namespace}/{story.name} waits without an explanation")
        await self._show_waiting_event(story, deadline)
        self.report.waited += explanation.lines()
        self._say(f"\n$ dray explain pod/{story.name} -n {story.namespace}")
        await self._say_short("\n".join(explanation.lines()))

    async def _show_waiting_event(self, story: Story, deadline: float) -> None:
        """Print the event that `kubectl describe pod` shows; it is off the critical path."""
        selector = f"involvedObject.name={story.name},reason={_WAITING_EVENT}"
        found = await self._kube.list(EVENTS, story.namespace, field_selector=selector)
        while not found.objects and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
            found = await self._kube.list(EVENTS, story.namespace, field_selector=selector)
        if not found.objects:
            self._fail(f"pod {story.namespace}/{story.name} waits without an event")
        for event in found.objects[:1]:
            await self._say_short(f"  event {_WAITING_EVENT}: {event['message']}")

    async def _make_room(self, manifest: Manifest) -> None:
        """Delete the pod that the manifest's annotation names."""
        annotations = manifest.object["metadata"].get("annotations", {})
        namespace, _, name = annotations.get(_MAKES_ROOM, "").partition("/")
        if not name:
            raise InvalidInputError(
                f"{manifest.file}: {manifest.title} has no annotation {_MAKES_ROOM} with "
                "NAMESPACE/NAME of the pod whose deletion lets it fit"
            )
        self._say(f"\n$ kubectl delete pod {name} -n {namespace}")
        await self._kube.delete(PODS, name, namespace)

    async def _say_why(self, story: Story) -> None:
        explanation = await fetch_explanation(self._kube, story.namespace, story.name)
        await self._say_short("\n".join(explanation.lines()))

    async def _say_short(self, text: str) -> None:
        """Print a text with short names of GPUs, within the terminal's width."""
        names = await names_in(self._kube, text)
        self._say(wrapped(abbreviated(names.shortened(text)), columns()))

    def _fail(self, problem: str) -> None:
        self.report.problems.append(problem)
        self._say(f"  FAILED: {problem}")


def report_as_json(report: DemoReport) -> dict[str, object]:
    """The report as data."""
    return {
        "pods": [story.as_json() for story in report.stories],
        "indicators": [
            {
                "pod": f"{found.namespace}/{found.pod}",
                "running": found.running,
                "claimSaysAllocated": found.claim_says_allocated,
                "eventSaysAssigned": found.event_says_assigned,
            }
            for found in report.indicators
        ],
        "waited": report.waited,
        "problems": report.problems,
    }
