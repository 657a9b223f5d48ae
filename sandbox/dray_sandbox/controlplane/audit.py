"""The audit log of a real API server: every request, its user and its response code.

The log has one JSON object per line, of kind ``Event`` in ``audit.k8s.io/v1``, at the level
``Metadata``, which has no bodies. The API server writes a line after it has answered.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # A watch has two events: one at its start (ResponseStarted), one at its end (ResponseComplete).
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
_FILE = "audit.log"
_MOST_MB = 500


@dataclass(frozen=True, slots=True)
class AuditLog:
    """The path of an API server's log, and the flags that enable it."""

    path: Path
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """One answered request. Absent fields are empty."""

    user: str
    verb: str
    """RBAC's verb: get, list, watch, create, update, patch, delete, deletecollection."""
    group: str
    resource: str
    """Empty for a non-resource request, such as ``/readyz``."""
    subresource: str
    namespace: str
    name: str
    path: str
    """The path, with the query."""
    code: int
    """The HTTP status."""
    decision: str = ""
    """The authorizer's decision: ``allow`` or ``forbid``."""
    reason: str = ""
    """The authorizer's reason: the role and binding that allow the request."""
    groups: tuple[str, ...] = ()
    """The user's groups."""

    @property
    def forbidden(self) -> bool:
        """Whether the user lacked the right. Admission answers 403 to requests with the right."""
        return self.decision == "forbid"


def start_audit_log(directory: Path) -> AuditLog:
    """Write the policy into ``directory``, which will also contain the log."""
    policy = directory / "audit-policy.json"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text(json.dumps(_POLICY, indent=2) + "\n")
    path = directory / _FILE
    flags = (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={path}",
        f"--audit-log-maxsize={_MOST_MB}",
        "--audit-log-maxbackup=1",
    )
    return AuditLog(path, flags)


def audited_requests(path: Path) -> Iterator[AuditedRequest]:
    """The requests in the log at ``path`` and in its rotated file, oldest first.

    A watch is listed once, at its start. An incomplete last line is skipped.
    """
    started: set[str] = set()
    for line in _lines(path):
        event = msgspec.json.decode(line, type=_Event)
        if event.stage == "ResponseStarted":
            started.add(event.auditID)
        elif event.auditID in started:
            started.remove(event.auditID)
            continue
        yield _request(event)


def _lines(path: Path) -> Iterator[bytes]:
    for file in (*sorted(path.parent.glob(f"{path.stem}-*{path.suffix}")), path):
        with file.open("rb") as lines:
            yield from (line for line in lines if line.endswith(b"\n"))


def _request(event: "_Event") -> AuditedRequest:
    what = event.objectRef
    return AuditedRequest(
        user=event.user.username,
        verb=event.verb,
        group=what.apiGroup,
        resource=what.resource,
        subresource=what.subresource,
        namespace=what.namespace,
        name=what.name,
        path=event.requestURI,
        code=event.responseStatus.code,
        groups=event.user.groups,
        decision=event.annotations.get("authorization.k8s.io/decision", ""),
        reason=event.annotations.get("authorization.k8s.io/reason", ""),
    )


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    groups: tuple[str, ...] = ()


class _ObjectRef(msgspec.Struct, frozen=True):
    apiGroup: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _Event(msgspec.Struct, frozen=True):
    """The fields of ``audit.k8s.io/v1`` that are read, with Kubernetes' names."""

    auditID: str
    stage: str
    verb: str
    requestURI: str
    user: _User = _User()
    objectRef: _ObjectRef = _ObjectRef()
    responseStatus: _Status = _Status()
    annotations: dict[str, str] = {}
