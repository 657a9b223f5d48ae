"""dray's own policies: what stays as it was created, for every user, also while dray is away."""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.contract.kubernetes.client import Refused

from dray.api.names import OWN_ANNOTATIONS, POD_ANNOTATIONS
from dray_sandbox.access import CLAIM_CONTROLLER
from dray_sandbox.chart import admission_policies

P = "tensor-fusion.ai/"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
Install = Callable[..., Awaitable[None]]
MARKER: list[Any] = [
    {
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "marker"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ]
            },
            "validations": [
                {"expression": "false", "messageExpression": "request.userInfo.username"}
            ],
        },
    },
    {
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "marker"},
        "spec": {"policyName": "marker", "validationActions": ["Deny"]},
    },
]
"""Denies what no test needs."""


@pytest.fixture
def install(api: Any, refused: type[Refused]) -> Install:
    """Installs the policies for the test's namespace alone, and returns once they are followed; by
    them the test's own user is dray where it is to be."""

    async def create(objects: list[Any]) -> None:
        suffix = api.unique("")
        for obj in objects:
            obj["metadata"]["name"] += suffix
            if "policyName" in obj["spec"]:
                obj["spec"]["policyName"] += suffix
            else:
                labels = {"kubernetes.io/metadata.name": api.namespace}
                constraints = obj["spec"]["matchConstraints"]
                constraints["namespaceSelector"] = {"matchLabels": labels}
            await api.create(PLURALS[obj["kind"]], obj)

    async def followed() -> str:
        """Wait until a policy that is made now is followed, and so are those before it: it tells
        the user's name."""
        await create([copy.deepcopy(obj) for obj in MARKER])
        messages: list[str] = []

        async def denied() -> bool:
            try:
                await api.create("configmaps", {"metadata": {"name": "probe"}}, dryRun="All")
            except refused as error:
                messages.append(error.message)
            return bool(messages)

        await api.until(denied)
        return messages[0].rpartition("denied request: ")[2]

    async def install(*, is_dray: bool = False) -> None:
        user = await followed() if is_dray else CLAIM_CONTROLLER
        await create(admission_policies(user))
        await followed()

    return install


def template(api: Any, name: str, labels: dict[str, str]) -> dict[str, Any]:
    spec = api.claim(name)["spec"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"metadata": {"labels": labels}, "spec": spec},
    }


async def pod_with(api: Any, **annotations: str) -> None:
    pod = api.pod("one")
    pod["metadata"]["annotations"] = {P + name: text for name, text in annotations.items()}
    await api.create("pods", pod)


async def annotate(api: Any, plural: str, name: str, text: str | None, *to: str) -> Any:
    return await api.patch(plural, "one", {"metadata": {"annotations": {name: text}}}, *to)


async def claim_with(api: Any, *, annotations: Any = None, labels: Any = None) -> Any:
    claim = api.claim("one")
    claim["metadata"] |= {"annotations": annotations or {}, "labels": labels or {}}
    return await api.create("resourceclaims", claim)


async def test_the_pool_of_a_pod_is_fixed_when_it_is_created(
    api: Any, install: Install, refused: Any
) -> None:
    await pod_with(api, gpupool="a")
    await install()

    for text in ("b", None):
        with pytest.raises(refused) as caught:
            await annotate(api, "pods", P + "gpupool", text)
        assert (caught.value.code, caught.value.reason) == (422, "Invalid")
        assert caught.value.message.endswith(
            f"annotation {P}gpupool of a pod is fixed when the pod is created, and was "
            '"a": delete the pod and create it again'
        )


async def test_a_pod_that_named_no_pool_gets_none_later(
    api: Any, install: Install, refused: Any
) -> None:
    await pod_with(api)
    await install()

    with pytest.raises(refused) as caught:
        await annotate(api, "pods", P + "gpupool", "a")
    assert "is fixed when the pod is created, and was absent: " in caught.value.message
    with pytest.raises(refused):
        await annotate(api, "pods", P + "gpupool", "a", "status")


async def test_every_annotation_of_a_pod_that_dray_reads_is_fixed(
    api: Any, install: Install, refused: Any
) -> None:
    await pod_with(api)
    await install()

    for name in (*POD_ANNOTATIONS, *OWN_ANNOTATIONS):
        with pytest.raises(refused) as caught:
            await annotate(api, "pods", name, "x")
        assert f"annotation {name} of a pod" in caught.value.message


async def test_a_value_of_several_lines_is_refused_in_words_too(
    api: Any, install: Install, refused: Any
) -> None:
    pod = api.pod("one")
    pod["metadata"]["annotations"] = {P + "dra-cel-expression": "a\nb"}
    await api.create("pods", pod)
    await install()

    with pytest.raises(refused) as caught:
        await annotate(api, "pods", P + "dra-cel-expression", "c")
    assert "annotations of dray are fixed when a pod is created" in caught.value.message


async def test_other_changes_of_a_pod_are_free(api: Any, install: Install) -> None:
    await pod_with(api, gpupool="a")
    await install()

    await annotate(api, "pods", "example.com/note", "x")
    await api.patch("pods", "one", {"metadata": {"labels": {P + "gpupool": "b"}}})
    await api.patch("pods", "one", {"status": {"message": "fine"}}, "status")


async def test_a_binding_brings_no_annotation_of_dray(
    api: Any, install: Install, refused: Any
) -> None:
    await pod_with(api)
    await install()

    with pytest.raises(refused) as caught:
        await api.bind("one", "n1", annotations={P + "gpupool": "a"})
    assert f"annotation {P}gpupool of a pod" in caught.value.message
    await api.bind("one", "n1", annotations={"example.com/note": "x"})


@pytest.mark.parametrize(
    "target",
    [pytest.param("real", marks=[pytest.mark.real, pytest.mark.timeout(900)])],
    indirect=True,
    scope="session",
)
async def test_nor_does_a_binding_in_the_old_form(api: Any, install: Install, refused: Any) -> None:
    """The old way to bind, which the sandbox does not serve."""
    await pod_with(api)
    await install()

    with pytest.raises(refused) as caught:
        await api.call("POST", api.path("bindings"), binding(P + "gpupool"))
    assert f"annotation {P}gpupool of a pod" in caught.value.message
    await api.call("POST", api.path("bindings"), binding("example.com/note"))


def binding(annotation: str) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "one", "annotations": {annotation: "a"}},
        "target": {"kind": "Node", "name": "n1"},
    }


@pytest.mark.parametrize("name", ["decision", "void", "allocated"])
async def test_only_dray_writes_the_fields_that_fence_decisions_whatever_the_class(
    api: Any, install: Install, refused: Any, name: str
) -> None:
    await install()

    with pytest.raises(refused):
        await claim_with(api, annotations={P + name: "1"})
    await claim_with(api, labels={P + "gpupool": "a"})
    with pytest.raises(refused) as caught:
        await annotate(api, "resourceclaims", P + name, "1")
    assert caught.value.message.endswith(
        f"annotation {P}{name} of a ResourceClaim is written by dray alone, and was absent: leave "
        "it as it was"
    )
    await annotate(api, "resourceclaims", "example.com/note", "x")


@pytest.mark.parametrize(("before", "after"), [("a", "b"), ("a", None), ("", "a")])
async def test_the_pool_of_a_claim_is_fixed_when_it_is_created(
    api: Any, install: Install, refused: Any, before: str, after: str | None
) -> None:
    await install()
    await claim_with(api, labels={P + "gpupool": before} if before else {})

    patch = {"metadata": {"labels": {P + "gpupool": after}}}
    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", patch)
    assert caught.value.message.endswith(
        f"label {P}gpupool of a ResourceClaim is fixed when the claim is created, and was "
        f'"{before}": delete the claim and create it again'
    )


async def test_only_the_control_plane_marks_a_claim_as_derived(
    api: Any, install: Install, refused: Any
) -> None:
    await install()
    derived = {P + "derived-from": "base"}

    with pytest.raises(refused):
        await claim_with(api, labels=derived)
    with pytest.raises(refused):
        await api.create("resourceclaimtemplates", template(api, "one", derived))
    await claim_with(api)
    with pytest.raises(refused) as caught:
        await api.patch("resourceclaims", "one", {"metadata": {"labels": derived}})
    assert "marks claims that Kubernetes makes from dray's templates" in caught.value.message
    await api.create("resourceclaimtemplates", template(api, "one", {P + "gpupool": "a"}))


async def test_dray_itself_writes_all_of_it(api: Any, install: Install) -> None:
    await pod_with(api, gpupool="a")
    await install(is_dray=True)

    await annotate(api, "pods", P + "void", "x")
    await claim_with(api, annotations={P + "decision": "1"})
    await annotate(api, "resourceclaims", P + "void", "1")
    await api.create("resourceclaimtemplates", template(api, "one", {P + "derived-from": "base"}))


@pytest.mark.parametrize("where", ["containers", "initContainers"])
async def test_shares_of_gpus_are_drays_to_ask_for(
    api: Any, install: Install, refused: Any, where: str
) -> None:
    await install()
    share = {"name": "one", "image": "i", "resources": {"limits": {P + "gpu-share": "1"}}}
    pod = api.pod("one")
    pod["spec"][where] = [*(pod["spec"].get(where) or ()), share]
    with pytest.raises(refused) as caught:
        await api.create("pods", pod)
    assert "gpu-share is written by dray alone" in caught.value.message
    admitted = {P + "shape": "{}", P + "dra-enabled": "false"}
    await api.create("pods", {**pod, "metadata": {"name": "two", "annotations": admitted}})
    await api.create("pods", api.pod("three"))
