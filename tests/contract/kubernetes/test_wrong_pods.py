"""What is wrong with a pod is refused by name, as far as dray writes it or reads it."""

from typing import Any

import pytest

C = "spec.containers[0]"


def spec(**more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i"}], **more}


def container(**more: Any) -> dict[str, Any]:
    return spec(containers=[{"name": "c", "image": "i", **more}])


def resources(**more: Any) -> dict[str, Any]:
    return container(resources=more)


def variable(**more: Any) -> dict[str, Any]:
    return container(env=[{"name": "A", **more}])


def field(path: Any) -> dict[str, Any]:
    return variable(valueFrom={"fieldRef": {"fieldPath": path}})


def using(*claims: Any) -> dict[str, Any]:
    named = [{"name": "gpu", "resourceClaimName": "x"}]
    return spec(resourceClaims=named, **resources(claims=list(claims)))


GPU = "example.com/gpu"
WRONG: dict[str, tuple[Any, list[str]]] = {
    "a resource that nobody knows": (
        resources(requests={"abc": "1"}),
        [
            f'{C}.resources.requests[abc]: Invalid value: "abc": must be a standard resource typ',
            f'{C}.resources.requests[abc]: Invalid value: "abc": must be a standard resource for',
        ],
    ),
    "a resource of two slashes": (
        resources(limits={"a/b/c": "1"}),
        [
            f'{C}.resources.limits[a/b/c]: Invalid value: "a/b/c": a valid label key',
            f'{C}.resources.limits[a/b/c]: Invalid value: "a/b/c": doesn\'t follow extended resou',
            f'{C}.resources.requests[a/b/c]: Invalid value: "a/b/c": a valid label key',
            f'{C}.resources.requests[a/b/c]: Invalid value: "a/b/c": doesn\'t follow extended res',
        ],
    ),
    "a device without limit": (
        resources(requests={GPU: "1"}),
        [f"{C}.resources.limits: Required value: Limit must be set for non overcommitable res"],
    ),
    "half a device": (
        resources(limits={GPU: "500m"}),
        [
            f'{C}.resources.limits[example.com/gpu]: Invalid value: "500m": must be an integer',
            f'{C}.resources.requests[example.com/gpu]: Invalid value: "500m": must be an integer',
        ],
    ),
    "a device requested and limited apart": (
        resources(requests={GPU: "1"}, limits={GPU: "2"}),
        [f'{C}.resources.requests: Invalid value: "1": must be equal to example.com/gpu limit'],
    ),
    "a negative amount": (
        resources(requests={"cpu": "-1"}),
        [f'{C}.resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to'],
    ),
    "a claim without name": (using({}), [f"{C}.resources.claims[0]: Required value"]),
    "a claim that the spec does not have": (
        using({"name": "other"}),
        [f'{C}.resources.claims[0]: Not found: "other": must be one of the names in pod.spec.'],
    ),
    "a claim's request that is not a label": (
        using({"name": "gpu", "request": "A_"}),
        [f'{C}.resources.claims[0].request: Invalid value: "A_": a lowercase RFC 1123 label'],
    ),
    "a variable without name": (
        container(env=[{"name": ""}]),
        [f"{C}.env[0].name: Required value"],
    ),
    "a variable of value and source": (
        variable(value="x", valueFrom={"fieldRef": {"fieldPath": "metadata.name"}}),
        [f'{C}.env[0].valueFrom: Invalid value: "": may not be specified when `value` is not '],
    ),
    "a variable of no source": (
        variable(valueFrom={}),
        [f'{C}.env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourc'],
    ),
    "a variable of all annotations": (
        field("metadata.annotations"),
        [f'{C}.env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.annotations"'],
    ),
    "a variable of an unknown field": (
        field("spec.x"),
        [f'{C}.env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.x": error converting'],
    ),
    "no image": (container(image=""), [f"{C}.image: Required value"]),
    "an unknown pull policy": (
        container(imagePullPolicy="Some"),
        [f'{C}.imagePullPolicy: Unsupported value: "Some": supported values: "Always", "IfNot'],
    ),
    "a gate that is not a name": (
        spec(schedulingGates=[{"name": "-"}]),
        ['spec.schedulingGates[0]: Invalid value: "-": name part'],
    ),
    "a gate twice": (
        spec(schedulingGates=[{"name": "a/b"}, {"name": "a/b"}]),
        ['spec.schedulingGates[1]: Duplicate value: "a/b"'],
    ),
    "a gated pod on a node": (
        spec(schedulingGates=[{"name": "a/b"}], nodeName="n"),
        ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleare"],
    ),
    "a toleration's key that is not a label": (
        spec(tolerations=[{"key": "a//b", "operator": "Exists"}]),
        ['spec.tolerations[0].key: Invalid value: "a//b": a valid label key'],
    ),
    "a toleration of nothing": (
        spec(tolerations=[{"operator": "Equal"}]),
        ['spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when'],
    ),
    "a toleration's seconds without NoExecute": (
        spec(tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 1}]),
        ["spec.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `to"],
    ),
    "a node selector that is not a label": (
        spec(nodeSelector={"-": "a"}),
        ['spec.nodeSelector: Invalid value: "-": name part'],
    ),
    "a claim of no reference": (
        spec(resourceClaims=[{"name": "gpu"}]),
        ['spec.resourceClaims[0]: Invalid value: {"Name":"gpu","ResourceClaimName":null,"Res'],
    ),
}
TAKEN = {
    "a variable of one annotation": field("metadata.annotations['tensor-fusion.ai/x']"),
    "a device, limited": resources(limits={GPU: "2"}),
    "one claim by two of its requests": using(
        {"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"}
    ),
    "less than a byte": resources(requests={"memory": "100m"}),
}
UNKNOWN = {
    "of the spec": (spec(oddField=1), "spec.oddField"),
    "of a container": (container(oddField=1), f"{C}.oddField"),
    "of a claim": (spec(resourceClaims=[{"name": "a", "odd": 1}]), "spec.resourceClaims[0].odd"),
    "of a claim's use": (using({"name": "gpu", "odd": 1}), f"{C}.resources.claims[0].odd"),
    "of a variable": (variable(odd=1), f"{C}.env[0].odd"),
}
MISTYPED = {
    "resources that are a list": container(resources=[]),
    "claims that are texts": resources(claims=["gpu"]),
    "variables that are a map": container(env={"A": "b"}),
    "a field that is a list": field(["metadata.name"]),
    "an image that is a number": container(image=1),
    "a priority that is a text": spec(priority="1"),
    "gates that are texts": spec(schedulingGates=["a/b"]),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_pod_is_refused(api: Any, invalid: Any, what: str) -> None:
    spec, expected = WRONG[what]

    with invalid(expected):
        await api.create("pods", {"metadata": {"name": "bad"}, "spec": spec})


@pytest.mark.parametrize("what", TAKEN)
async def test_a_pod_that_looks_wrong_may_be_accepted(api: Any, what: str) -> None:
    await api.create("pods", {"metadata": {"name": "one"}, "spec": TAKEN[what]}, dryRun="All")


@pytest.mark.parametrize("what", UNKNOWN)
async def test_strict_validation_names_an_unknown_field(api: Any, refused: Any, what: str) -> None:
    spec, unknown = UNKNOWN[what]
    body = {"metadata": {"name": "bad"}, "spec": spec}

    with pytest.raises(refused) as caught:
        await api.create("pods", body, fieldValidation="Strict")

    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    assert f'unknown field "{unknown}"' in caught.value.message


@pytest.mark.parametrize("what", MISTYPED)
async def test_a_value_of_the_wrong_type_is_a_bad_request(
    api: Any, refused: Any, what: str
) -> None:
    with pytest.raises(refused) as caught:
        await api.create("pods", {"metadata": {"name": "bad"}, "spec": MISTYPED[what]})

    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    assert "cannot unmarshal" in caught.value.message
