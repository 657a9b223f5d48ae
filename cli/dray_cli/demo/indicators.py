"""The three success indicators of the user guide (§3.5), checked literally."""

from collections.abc import Sequence
from dataclasses import dataclass

from dray.kube.convert_pods import claim_names
from dray.kube.ports import CLAIMS, EVENTS, PODS, Kube, Object
from dray_cli.output import as_yaml

_EVENT_TEXT = "Successfully assigned resources"
_CLAIM_TEXT = 'allocated: "true"'


@dataclass(frozen=True, slots=True)
class Indicators:
    """Whether each indicator holds for a pod."""

    namespace: str
    pod: str
    running: bool
    claim_says_allocated: bool
    event_says_assigned: bool

    @property
    def all_hold(self) -> bool:
        return self.running and self.claim_says_allocated and self.event_says_assigned

    def line(self) -> str:
        """The pod's name, and a line for each indicator."""
        marks = (
            (self.running, "Pod is Running"),
            (self.claim_says_allocated, f"claim YAML contains {_CLAIM_TEXT}"),
            (self.event_says_assigned, f'event "{_EVENT_TEXT}"'),
        )
        lines = [f"    {'✓' if holds else '✗'} {text}" for holds, text in marks]
        return "\n".join((f"  {self.namespace}/{self.pod}", *lines))


async def check(kube: Kube, namespace: str, pod_name: str) -> Indicators:
    """Read pod, claims and events of one pod from the API server and check them.

    Raises:
        NotFoundError: there is no such pod.
    """
    pod = await kube.get(PODS, pod_name, namespace)
    claims = [await kube.get(CLAIMS, claim, namespace) for claim in claim_names(pod).values()]
    events = await kube.list(EVENTS, namespace, field_selector=f"involvedObject.name={pod_name}")
    return Indicators(
        namespace=namespace,
        pod=pod_name,
        running=pod.get("status", {}).get("phase") == "Running",
        claim_says_allocated=bool(claims) and all(_CLAIM_TEXT in as_yaml(c) for c in claims),
        event_says_assigned=_any_says(events.objects, _EVENT_TEXT),
    )


def _any_says(events: Sequence[Object], text: str) -> bool:
    return any(text in event.get("message", "") for event in events)
