"""How a pod ended, from its status as the kubelet wrote it. Pure."""

from dataclasses import dataclass
from typing import Any, Final

from dray.api.pods import TERMINAL_PHASES
from dray.kube.ports import Object

_SUCCEEDED: Final = "PodSucceeded"
_FAILED: Final = "PodFailed"
_UNREMARKABLE: Final = ("Completed", "Error")
"""Reasons of terminated containers that add nothing to the exit code."""


@dataclass(frozen=True, slots=True)
class PodEnd:
    """The end of a pod whose phase is Succeeded or Failed."""

    ran: bool
    """Whether a container started; False: the kubelet rejected the pod, or it never got a node."""
    reason: str
    """One word: why the pod failed, from its status; else whether it succeeded or failed."""
    node: str
    """Empty if it never got a node."""
    finished: str
    """When its last container ended, in RFC 3339; empty if no container says so."""
    exits: tuple[str, ...]
    """``NAME CODE`` of each container that ended, and the reason if it is a special one."""
    message: str
    """The kubelet's message about the end; may be empty."""

    def words(self) -> str:
        """The end as a clause: ``ran on sim-1 until …, exit code 0``."""
        if not self.ran:
            where = f"was rejected on {self.node}" if self.node else "never got a node"
            return f"{where}: {': '.join(one for one in (self.reason, self.message) if one)}"
        until = f" until {self.finished}" if self.finished else ""
        text = f" ({self.message})" if self.message else ""
        why = f", {self.reason}{text}" if self.reason not in (_SUCCEEDED, _FAILED) else text
        return f"ran on {self.node}{until}{self._exits()}{why}"

    def _exits(self) -> str:
        if not self.exits:
            return ""
        if len(self.exits) == 1:
            return f", exit code {self.exits[0].partition(' ')[2]}"
        return f", exit codes: {', '.join(self.exits)}"


def pod_end(pod: Object) -> PodEnd | None:
    """How the pod ended; None if it has not ended."""
    status = pod.get("status") or {}
    if status.get("phase") not in TERMINAL_PHASES:
        return None
    ended = [
        (str(one.get("name")), found)
        for one in status.get("containerStatuses") or ()
        if (found := (one.get("state") or {}).get("terminated"))
    ]
    ran = [found for _, found in ended if found.get("startedAt")]
    succeeded = status["phase"] == "Succeeded"
    return PodEnd(
        ran=bool(ran) or succeeded,
        reason=str(status.get("reason") or (_SUCCEEDED if succeeded else _FAILED)),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        finished=max((str(found.get("finishedAt") or "") for found in ran), default=""),
        exits=tuple(_exit(name, found) for name, found in ended),
        message=str(status.get("message") or ""),
    )


def _exit(name: str, found: dict[str, Any]) -> str:
    why = found.get("reason") or ""
    text = f" ({why})" if why and why not in _UNREMARKABLE else ""
    return f"{name} {found.get('exitCode')}{text}"
