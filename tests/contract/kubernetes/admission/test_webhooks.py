"""Admission webhooks: when they are called, with what, and what their answer does."""

import base64
from pathlib import Path
from typing import Any

import pytest

from dray_sandbox.certificates import make_server_files

LABEL = [{"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}]
MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"


async def test_a_patch_is_applied(api: Any, hook: Any, in_force: Any) -> None:
    hook.patch = LABEL
    await in_force(api, hook, MUTATING, hook.configuration(api))

    made = await api.create("pods", api.pod("one"))

    assert made["metadata"]["labels"] == {"by": "hook"}


async def test_the_review_has_the_complete_request(api: Any, hook: Any, in_force: Any) -> None:
    await in_force(api, hook, MUTATING, hook.configuration(api))
    pod = api.pod()
    pod["metadata"]["generateName"] = "web-"

    await api.create("pods", pod, fieldManager="me")

    [request] = hook.requests
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    assert request["kind"] == request["requestKind"] == kind
    assert request["resource"] == request["requestResource"] == resource
    assert request["operation"] == "CREATE"
    assert request["namespace"] == api.namespace
    assert request["dryRun"] is False
    assert request["oldObject"] is None
    assert request["options"]["fieldManager"] == "me"
    assert request["options"]["kind"] == "CreateOptions"
    assert "system:authenticated" in request["userInfo"]["groups"]
    # At CREATE with generateName nothing has a name yet, and a pod no uid.
    assert "name" not in request
    assert "name" not in request["object"]["metadata"]
    assert "uid" not in request["object"]["metadata"]
    assert request["object"]["metadata"]["generateName"] == "web-"
    assert request["object"]["metadata"]["namespace"] == api.namespace
    assert request["object"]["spec"]["restartPolicy"] == "Always"


async def test_an_update_shows_old_and_new(api: Any, hook: Any, in_force: Any) -> None:
    await in_force(api, hook, MUTATING, hook.configuration(api))
    await api.create("pods", api.pod("one"))

    await api.patch("pods", "one", {"metadata": {"labels": {"a": "b"}}})

    request = hook.requests[-1]
    assert (request["operation"], request["name"]) == ("UPDATE", "one")
    assert "labels" not in request["oldObject"]["metadata"]
    assert request["object"]["metadata"]["labels"] == {"a": "b"}


async def test_a_status_write_is_another_resource(api: Any, hook: Any, in_force: Any) -> None:
    await in_force(api, hook, MUTATING, hook.configuration(api))
    await api.create("pods", api.pod("one"))
    hook.requests.clear()

    await api.patch("pods", "one", {"status": {"phase": "Running"}}, "status")

    assert hook.requests == []


async def test_a_dry_run_is_passed_on(api: Any, hook: Any, in_force: Any) -> None:
    await in_force(api, hook, MUTATING, hook.configuration(api))

    await api.create("pods", api.pod("one"), dryRun="All")

    assert hook.requests[-1]["dryRun"] is True


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_a_denial_names_the_webhook_and_the_reason(
    api: Any, refusal: Any, hook: Any, in_force: Any, kind: str
) -> None:
    hook.response = {"allowed": False, "status": {"message": "not here", "code": 403}}
    plural = MUTATING if kind == "Mutating" else VALIDATING
    await in_force(api, hook, plural, hook.configuration(api))

    error = await refusal()

    assert error.code == 403
    expected = 'admission webhook "hook.example.com" denied the request: not here'
    assert error.message == expected
    assert await api.names("pods") == []


async def test_a_denial_without_reason_or_code_is_a_bad_request(
    api: Any, refusal: Any, hook: Any, in_force: Any
) -> None:
    hook.response = {"allowed": False}
    await in_force(api, hook, VALIDATING, hook.configuration(api))

    error = await refusal()

    assert error.code == 400
    expected = 'admission webhook "hook.example.com" denied the request without explanation'
    assert error.message == expected


async def test_warnings_become_headers(api: Any, hook: Any, in_force: Any) -> None:
    hook.response = {"warnings": ['did you mean "qos"?']}
    await in_force(api, hook, MUTATING, hook.configuration(api))

    await api.create("pods", api.pod("one"))

    assert api.warnings == ['299 - "did you mean \\"qos\\"?"']


ANNOTATED = (
    "has(object.metadata.annotations) && "
    "object.metadata.annotations.exists(k, k.startsWith('tensor-fusion.ai/'))"
)
IS_POD = "request.kind.kind == 'Pod' && request.operation in ['CREATE', 'UPDATE']"


async def test_match_conditions_decide_who_is_asked(api: Any, hook: Any, in_force: Any) -> None:
    conditions = [
        {"name": "annotated", "expression": ANNOTATED},
        {"name": "pod", "expression": IS_POD},
    ]
    asked = api.pod("asked")
    asked["metadata"]["annotations"] = {"tensor-fusion.ai/gpu-count": "1"}
    body = hook.configuration(api, matchConditions=conditions)
    await in_force(api, hook, MUTATING, body, probe=asked)
    other = api.pod("other")
    other["metadata"]["annotations"] = {"example.com/x": "1"}

    for pod in (asked, other, api.pod("plain")):
        await api.create("pods", pod)

    assert [request["object"]["metadata"]["name"] for request in hook.requests] == ["asked"]


async def test_a_condition_that_fails_denies_where_the_policy_is_fail(
    api: Any, refusal: Any, hook: Any, in_force: Any
) -> None:
    conditions = [{"name": "c", "expression": "object.metadata.annotations['a'] == 'b'"}]
    probe = api.pod("probe")
    probe["metadata"]["annotations"] = {"a": "b"}
    body = hook.configuration(api, matchConditions=conditions)
    await in_force(api, hook, MUTATING, body, probe=probe)

    error = await refusal()

    assert error.code == 403
    assert error.message.startswith('pods "one" is forbidden: ')


async def test_a_condition_that_does_not_parse_is_refused(
    api: Any, refused: Any, hook: Any
) -> None:
    conditions = [{"name": "c", "expression": "object.metadata."}]

    with pytest.raises(refused) as caught:
        await api.create(MUTATING, hook.configuration(api, matchConditions=conditions))

    assert caught.value.code == 422
    assert caught.value.causes()[0][0] == "webhooks[0].matchConditions[0].expression"


async def test_labels_select_who_is_asked(api: Any, hook: Any, in_force: Any) -> None:
    labelled = api.pod("labelled")
    labelled["metadata"]["labels"] = {"gpu": "yes"}
    selector = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["yes"]}]}
    body = hook.configuration(api, objectSelector=selector)
    await in_force(api, hook, MUTATING, body, probe=labelled)

    await api.create("pods", api.pod("plain"))
    await api.create("pods", labelled)

    assert [request["name"] for request in hook.requests] == ["labelled"]


async def test_a_webhook_that_is_away_stops_the_request(
    api: Any, refusal: Any, hook: Any, in_force: Any
) -> None:
    hook.url = "https://127.0.0.1:1/mutate"
    await in_force(api, hook, MUTATING, hook.configuration(api))

    error = await refusal()

    assert (error.code, error.reason) == (500, "InternalError")
    start = (
        'Internal error occurred: failed calling webhook "hook.example.com": failed to call '
        'webhook: Post "https://127.0.0.1:1/mutate?timeout=10s": '
    )
    assert error.message.startswith(start)


async def test_a_wrong_authority_is_not_trusted(
    api: Any, refusal: Any, hook: Any, in_force: Any, tmp_path: Path
) -> None:
    other = make_server_files(tmp_path / "other", ("127.0.0.1",))
    hook.ca_bundle = base64.b64encode(other.authority.read_bytes()).decode()
    await in_force(api, hook, MUTATING, hook.configuration(api))

    error = await refusal()

    assert error.code == 500
    assert hook.requests == []


async def test_an_earlier_webhook_is_asked_again_after_a_change(
    api: Any, hook: Any, in_force: Any
) -> None:
    first = hook.configuration(api, reinvocationPolicy="IfNeeded")
    await in_force(api, hook, MUTATING, first)
    hook.patch = [{"op": "add", "path": "/metadata/annotations", "value": {"n": "1"}}]
    second = hook.configuration(api, name="second.example.com")
    await in_force(api, hook, MUTATING, second)

    async def both_asked() -> bool:
        hook.requests.clear()
        await api.create("pods", api.pod("probe"), dryRun="All")
        return len(hook.requests) >= 2

    await api.until(both_asked)
    hook.requests.clear()
    hook.patch = [{"op": "replace", "path": "/metadata/labels", "value": {"n": "x"}}]
    pod = api.pod("one")
    pod["metadata"]["labels"] = {"n": "0"}

    made = await api.create("pods", pod)

    assert made["metadata"]["labels"] == {"n": "x"}
    # Both change the labels once; after that nothing changes, so nobody is asked a third time.
    assert 2 <= len(hook.requests) <= 3


async def test_a_binding_may_be_reviewed(api: Any, refused: Any, hook: Any, in_force: Any) -> None:
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods", "pods/binding"],
    }
    await in_force(api, hook, VALIDATING, hook.configuration(api, rules=[rule]))
    await api.create("pods", api.pod("one"))
    hook.response = {"allowed": False, "status": {"message": "no"}}

    with pytest.raises(refused):
        await api.bind("one", "node-1")

    request = hook.requests[-1]
    assert request["subResource"] == "binding"
    assert request["kind"]["kind"] == "Binding"
    assert request["object"]["target"]["name"] == "node-1"
