"""Reading the audit log that a real API server writes."""

import json
from pathlib import Path
from typing import Any

from dray_sandbox.controlplane.audit import audited_requests, start_audit_log


def event(audit_id: str, stage: str = "ResponseComplete", **fields: Any) -> str:
    return json.dumps(
        {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "auditID": audit_id,
            "stage": stage,
            "verb": "get",
            "requestURI": "/readyz",
            "user": {"username": "somebody"},
            "responseStatus": {"code": 200},
            **fields,
        }
    )


FORBIDDEN = event(
    "1",
    verb="update",
    requestURI="/api/v1/namespaces/team/pods/worker/status",
    user={"username": "dray-webhook", "groups": ["dray-services"]},
    objectRef={"resource": "pods", "subresource": "status", "namespace": "team", "name": "worker"},
    responseStatus={"code": 403},
    annotations={"authorization.k8s.io/decision": "forbid"},
)


def test_a_request_says_who_asked_for_what_and_whether_it_was_forbidden(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(FORBIDDEN + "\n" + event("2") + "\n")
    forbidden, probe = audited_requests(log)
    assert (forbidden.user, forbidden.groups) == ("dray-webhook", ("dray-services",))
    assert (forbidden.verb, forbidden.group, forbidden.resource) == ("update", "", "pods")
    assert (forbidden.subresource, forbidden.namespace, forbidden.name) == (
        "status",
        "team",
        "worker",
    )
    assert forbidden.code == 403
    assert forbidden.forbidden
    assert not probe.forbidden
    assert probe.resource == ""


def test_what_admission_denies_is_not_forbidden(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    allowed = {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "a role"}
    log.write_text(event("1", responseStatus={"code": 403}, annotations=allowed) + "\n")
    (denied,) = audited_requests(log)
    assert (denied.code, denied.forbidden, denied.reason) == (403, False, "a role")


def test_a_watch_stands_once(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    begun = event("1", "ResponseStarted", verb="watch")
    log.write_text("\n".join([begun, event("2"), event("1", verb="watch"), event("3"), ""]))
    assert [request.verb for request in audited_requests(log)] == ["watch", "get", "get"]


def test_the_file_of_before_comes_first_and_a_half_written_line_is_left_out(
    tmp_path: Path,
) -> None:
    (tmp_path / "audit-2026-11-21T10-00-00.000.log").write_text(event("1", verb="list") + "\n")
    log = tmp_path / "audit.log"
    log.write_text(event("2") + "\n" + event("3")[:40])
    assert [request.verb for request in audited_requests(log)] == ["list", "get"]


def test_the_policy_is_written_where_the_flags_say(tmp_path: Path) -> None:
    started = start_audit_log(tmp_path / "kubernetes")
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in started.flags)
    assert json.loads(Path(flags["audit-policy-file"]).read_text())["kind"] == "Policy"
    assert flags["audit-log-path"] == str(started.path)
