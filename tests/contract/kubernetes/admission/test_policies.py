"""ValidatingAdmissionPolicies: what they deny, whom, in which words, and what they may say."""

from typing import Any

import pytest
from tests.contract.kubernetes.client import Refused

POLICIES, BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
FIXED = "object.metadata.labels['gpu'] == oldObject.metadata.labels['gpu']"


class Policy:
    """A policy for objects of one namespace, and its binding."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self.name = api.unique("policy")

    def body(self, *validations: Any, rules: Any = None, **spec: Any) -> dict[str, Any]:
        labels = {"kubernetes.io/metadata.name": self.api.namespace}
        rule = {
            "operations": ["UPDATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
        }
        constraints = {
            "resourceRules": rules or [rule],
            "namespaceSelector": {"matchLabels": labels},
        }
        given = {"matchConstraints": constraints, "validations": list(validations), **spec}
        return {"metadata": {"name": self.name}, "spec": given}

    def binding(self, **spec: Any) -> dict[str, Any]:
        given = {"policyName": self.name, "validationActions": ["Deny"], **spec}
        return {"metadata": {"name": f"{self.name}-b"}, "spec": given}


@pytest.fixture
def policy(api: Any) -> Policy:
    return Policy(api)


@pytest.fixture
def denied(api: Any, refused: type[AssertionError]) -> Any:
    """Sets a label of pod `one` until that is denied, as real servers follow a policy only after a
    moment; returns how."""

    async def until_denied(value: str = "no", **more: Any) -> Any:
        found: list[Any] = []

        async def is_denied() -> bool:
            try:
                await relabel(api, value, **more)
            except refused as error:
                found.append(error)
            return bool(found)

        await api.until(is_denied)
        return found[0]

    return until_denied


async def relabel(api: Any, value: str, **more: Any) -> Any:
    patch = {"metadata": {"labels": {"gpu": value, **more}}}
    return await api.patch("pods", "one", patch, dryRun="All")


async def labelled_pod(api: Any, **labels: str) -> None:
    pod = api.pod("one")
    pod["metadata"]["labels"] = {"gpu": "yes", **labels}
    await api.create("pods", pod)


async def test_a_failed_call_is_denied_with_its_message(
    api: Any, policy: Policy, denied: Any
) -> None:
    await labelled_pod(api)
    await api.create(POLICIES, policy.body({"expression": FIXED, "message": "gpu is fixed"}))
    await api.create(BINDINGS, policy.binding())

    error = await denied()

    text = (
        f"ValidatingAdmissionPolicy '{policy.name}' with binding '{policy.name}-b' denied request: "
        "gpu is fixed"
    )
    assert (error.code, error.reason) == (422, "Invalid")
    assert error.message == f'pods "one" is forbidden: {text}'
    assert error.causes() == [("", text)]
    await relabel(api, "yes", other="label")


async def test_a_message_is_made_of_variables(api: Any, policy: Policy, denied: Any) -> None:
    await labelled_pod(api)
    variables = [
        {"name": "before", "expression": "oldObject.metadata.labels"},
        {"name": "changed", "expression": "variables.before['gpu'] != object.metadata.labels.gpu"},
    ]
    words = "'gpu was ' + variables.before['gpu'] + ' and would be ' + object.metadata.labels.gpu"
    validation = {"expression": "!variables.changed", "messageExpression": words}
    await api.create(POLICIES, policy.body(validation, variables=variables))
    await api.create(BINDINGS, policy.binding())

    error = await denied()

    assert error.message.endswith("denied request: gpu was yes and would be no")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("'gpu ' + object.metadata.labels['absent']", "the fallback"),
        ("'two\\nlines'", "the fallback"),
        ("'  '", "the fallback"),
        ("' said '", "said"),
    ],
)
async def test_a_message_that_cannot_be_made_falls_back(
    api: Any, policy: Policy, denied: Any, words: str, expected: str
) -> None:
    await labelled_pod(api)
    validation = {"expression": FIXED, "messageExpression": words, "message": "the fallback"}
    await api.create(POLICIES, policy.body(validation))
    await api.create(BINDINGS, policy.binding())

    error = await denied()

    assert error.message.endswith(f"denied request: {expected}")


async def test_without_any_message_the_expression_is_shown(
    api: Any, policy: Policy, denied: Any
) -> None:
    await labelled_pod(api)
    await api.create(POLICIES, policy.body({"expression": f" {FIXED} "}))
    await api.create(BINDINGS, policy.binding())

    error = await denied()

    assert error.message.endswith(f"denied request: failed expression: {FIXED}")


async def test_the_first_of_several_denials_is_answered(
    api: Any, policy: Policy, denied: Any
) -> None:
    await labelled_pod(api)
    second = {"expression": "false", "message": "never"}
    body = policy.body({"expression": FIXED, "message": "first"}, second)
    await api.create(POLICIES, body)
    await api.create(BINDINGS, policy.binding())

    error = await denied()

    assert error.message.endswith("denied request: first")


async def test_a_reason_has_its_code(api: Any, policy: Policy, denied: Any) -> None:
    await labelled_pod(api)
    await api.create(POLICIES, policy.body({"expression": FIXED, "reason": "Forbidden"}))
    await api.create(BINDINGS, policy.binding())

    error = await denied()

    assert (error.code, error.reason) == (403, "Forbidden")


async def test_conditions_keep_requests_from_the_policy(
    api: Any, policy: Policy, denied: Any
) -> None:
    await labelled_pod(api)
    user = "request.userInfo.username != 'nobody' && object.metadata.labels.gpu != 'free'"
    conditions = [{"name": "some", "expression": user}]
    await api.create(POLICIES, policy.body({"expression": FIXED}, matchConditions=conditions))
    await api.create(BINDINGS, policy.binding())

    await denied()

    await relabel(api, "free")


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
async def test_a_validation_that_cannot_be_evaluated_follows_the_failure_policy(
    api: Any, policy: Policy, denied: Any, failure_policy: str
) -> None:
    await labelled_pod(api)
    validations = [
        {"expression": "object.metadata.labels.gpu != 'no'", "message": "no is wrong"},
        {"expression": "object.metadata.labels['absent'] == 'x'"},
    ]
    await api.create(POLICIES, policy.body(*validations, failurePolicy=failure_policy))
    await api.create(BINDINGS, policy.binding())

    await denied()

    if failure_policy == "Ignore":
        await relabel(api, "other")
    else:
        error = await denied("other")
        assert (error.code, error.reason) == (422, "Invalid")
        assert "resulted in error: " in error.message


async def test_a_false_condition_outweighs_one_that_cannot_be_evaluated(
    api: Any, policy: Policy, denied: Any
) -> None:
    await labelled_pod(api)
    conditions = [
        {"name": "broken", "expression": "object.metadata.labels['absent'] == 'x'"},
        {"name": "free", "expression": "object.metadata.labels.gpu != 'free'"},
    ]
    await api.create(POLICIES, policy.body({"expression": FIXED}, matchConditions=conditions))
    await api.create(BINDINGS, policy.binding())

    await denied()

    await relabel(api, "free")


async def test_without_a_binding_nothing_is_denied(api: Any, policy: Policy, denied: Any) -> None:
    await labelled_pod(api)
    await api.create(POLICIES, policy.body({"expression": FIXED}))
    await relabel(api, "no")
    await api.create(BINDINGS, policy.binding())
    await denied()

    await api.delete(BINDINGS, f"{policy.name}-b")

    async def is_free() -> bool:
        try:
            await relabel(api, "no")
        except AssertionError:
            return False
        return True

    await api.until(is_free)


async def test_a_binding_may_warn(api: Any, policy: Policy) -> None:
    await labelled_pod(api)
    await api.create(POLICIES, policy.body({"expression": FIXED, "message": "gpu is fixed"}))
    await api.create(BINDINGS, policy.binding(validationActions=["Warn"]))

    async def is_warned() -> bool:
        await relabel(api, "no")
        return bool(api.warnings)

    await api.until(is_warned)
    assert (
        f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding "
        f"'{policy.name}-b': gpu is fixed" in api.warnings[0]
    )


async def test_a_status_write_is_another_resource_that_rules_may_name(
    api: Any, policy: Policy, denied: Any, refused: type[AssertionError]
) -> None:
    await labelled_pod(api)
    rule = {
        "operations": ["UPDATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods", "pods/status"],
    }
    await api.create(POLICIES, policy.body({"expression": FIXED}, rules=[rule]))
    await api.create(BINDINGS, policy.binding())
    await denied()

    # A status update carries labels and annotations of a pod.
    with pytest.raises(refused):
        await api.patch("pods", "one", {"metadata": {"labels": {"gpu": "no"}}}, "status")
    await api.patch("pods", "one", {"status": {"message": "fine"}}, "status")


async def test_at_creation_there_is_no_old_object(api: Any, policy: Policy, refused: Any) -> None:
    rule = {
        "operations": ["CREATE"],
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "resources": ["resourceclaims"],
    }
    absent = "!has(object.metadata.annotations) || !('mark' in object.metadata.annotations)"
    validation = {"expression": f"oldObject == null && ({absent})", "message": "no mark"}
    await api.create(POLICIES, policy.body(validation, rules=[rule]))
    await api.create(BINDINGS, policy.binding())
    claim = api.claim("")
    claim["metadata"] = {"generateName": "some-", "annotations": {"mark": "1"}}
    messages: list[str] = []

    async def is_denied() -> bool:
        try:
            await api.create("resourceclaims", claim, dryRun="All")
        except refused as error:
            messages.append(error.message)
        return bool(messages)

    await api.until(is_denied)
    assert messages[0].startswith('resourceclaims.resource.k8s.io "some-')
    await api.create("resourceclaims", api.claim("plain"), dryRun="All")


async def test_the_annotations_of_a_binding_are_seen(
    api: Any, policy: Policy, refused: type[Refused]
) -> None:
    await labelled_pod(api)
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods/binding"],
    }
    expression = "!has(object.metadata.annotations) && oldObject == null"
    await api.create(POLICIES, policy.body({"expression": expression}, rules=[rule]))
    await api.create(BINDINGS, policy.binding())

    async def is_denied() -> bool:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "one", "annotations": {"a": "b"}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        }
        path = api.path("pods", "one", "binding")
        try:
            await api.call("POST", path, body, dryRun="All")
        except refused as error:
            return "ValidatingAdmissionPolicy" in error.message
        return False

    await api.until(is_denied)


async def test_defaults_are_filled_in(api: Any, policy: Policy) -> None:
    body = policy.body({"expression": "true"})
    body["spec"]["matchConstraints"].pop("namespaceSelector")
    made = (await api.create(POLICIES, body))["spec"]

    assert made["failurePolicy"] == "Fail"
    constraints = made["matchConstraints"]
    assert constraints["matchPolicy"] == "Equivalent"
    assert constraints["namespaceSelector"] == constraints["objectSelector"] == {}
    assert constraints["resourceRules"][0]["scope"] == "*"


S = "spec"
WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no validation": (
        {"validations": []},
        [
            f"{S}.validations: Required value: validations or auditAnnotations must contain at lea",
            f"{S}.auditAnnotations: Required value: validations or auditAnnotations must contain a",
        ],
    ),
    "nothing to match": (
        {"matchConstraints": None},
        [f"{S}.matchConstraints: Required value"],
    ),
    "an unknown policy": (
        {"failurePolicy": "Maybe"},
        [f'{S}.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"'],
    ),
    "an empty expression": (
        {"validations": [{"expression": " "}]},
        [f"{S}.validations[0].expression: Required value: expression is not specified"],
    ),
    "a validation that is not a bool": (
        {"validations": [{"expression": "1"}]},
        [f'{S}.validations[0].expression: Invalid value: "1": must evaluate to bool'],
    ),
    "a message of two lines": (
        {"validations": [{"expression": "true", "message": "a\nb"}]},
        [f'{S}.validations[0].message: Invalid value: "a\\nb": must not contain line breaks'],
    ),
    "an unknown reason": (
        {"validations": [{"expression": "true", "reason": "Because"}]},
        [f'{S}.validations[0].reason: Unsupported value: "Because": supported values: "Forbi'],
    ),
    "a variable without a name": (
        {"variables": [{"expression": "1"}]},
        [f"{S}.variables[0].name: Required value: name is not specified"],
    ),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_policy_is_refused(api: Any, invalid: Any, policy: Policy, what: str) -> None:
    more, expected = WRONG[what]
    body = policy.body({"expression": "true"})
    body["spec"] |= more

    with invalid(expected):
        await api.create(POLICIES, body)


async def test_a_wrong_binding_is_refused(api: Any, invalid: Any, policy: Policy) -> None:
    expected = [
        "spec.validationActions: Required value: at least one validation action is required"
    ]
    with invalid(expected):
        await api.create(BINDINGS, policy.binding(validationActions=[]))
