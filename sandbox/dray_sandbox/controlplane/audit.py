"""The audit log of a real API server: every request, who made it and what it was answered.

The log holds one JSON object per line, of kind ``Event`` in ``audit.k8s.io/v1``, at the level
``Metadata``: no bodies. The API server writes a request's line when it has answered it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # A watch is answered when it begins (ResponseStarted) and when it ends (ResponseComplete).
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
_FILE = "audit.log"
_MOST_MB = 500


@dataclass(frozen=True, slots=True)
class AuditLog:
    """Where an API server writes its log, and the flags that make it do so."""

    path: Path
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """One answered request. Texts that a request has not are empty."""

    user: str
    verb: str
    """As RBAC knows it: get, list, watch, create, update, patch, delete, deletecollection."""
    group: str
    resource: str
    """Empty for a request of no resource, such as ``/readyz``."""
    subresource: str
    namespace: str
    name: str
    path: str
    """With the query, as it was asked."""
    code: int
    """Of the HTTP answer."""
    decision: str = ""
    """The authorizer's: ``allow`` or ``forbid``."""
    reason: str = ""
    """Why the authorizer decided so: the role and binding that allow it."""
    groups: tuple[str, ...] = ()
    """Of the user."""

    @property
    def forbidden(self) -> bool:
        """Whether the user lacked the right to it; admission answers 403 to allowed ones."""
        return self.decision == "forbid"


def start_audit_log(directory: Path) -> AuditLog:
    """Write the policy into ``directory``, where the log will stand, too."""
    policy = directory / "audit-policy.json"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text(json.dumps(POLICY, indent=2) + "\n")
    path = directory / _FILE
    flags = (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={path}",
        f"--audit-log-maxsize={_MOST_MB}",
        "--audit-log-maxbackup=1",
    )
    return AuditLog(path, flags)


def audited_requests(path: Path) -> Iterator[AuditedRequest]:
    """What the log at ``path`` holds, oldest first, with the former file of one that grew.

    A watch stands once, as of its beginning. A last line that is not whole, because the server
    writes it now, is left out.
    """
    begun: set[str] = set()
    for line in _lines(path):
        event = msgspec.json.decode(line, type=_Event)
        if event.stage == "ResponseStarted":
            begun.add(event.auditID)
        elif event.auditID in begun:
            begun.remove(event.auditID)
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
    """The fields of ``audit.k8s.io/v1`` that are read; the names are Kubernetes'."""

    auditID: str
    stage: str
    verb: str
    requestURI: str
    user: _User = _User()
    objectRef: _ObjectRef = _ObjectRef()
    responseStatus: _Status = _Status()
    annotations: dict[str, str] = {}
