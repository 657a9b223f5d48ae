"""Which GPUs the devices of a pod name: every container sees all of its own, in any order."""

from hypothesis import given
from hypothesis import strategies as st

from dray.kube.convert_pods import claim_names
from dray_node_agent.decisions.visible_gpus import (
    ClaimPart,
    container_parts,
    containers_of,
    visible_gpus,
)


def part(name: str, *requests: str) -> ClaimPart:
    return ClaimPart(f"v/gpu={name}", f"GPU-{name}", requests or ("gpu",))


def pod(**containers: list[str]) -> dict:
    """Containers with their claims, each as ``claim`` or ``claim/request``."""
    return {
        "spec": {
            "containers": [
                {"name": name, "resources": {"claims": [_reference(text) for text in claims]}}
                for name, claims in containers.items()
            ]
        }
    }


def _reference(text: str) -> dict:
    name, _, request = text.partition("/")
    return {"name": name, **({"request": request} if request else {})}


A, B, C = part("a"), part("b"), part("c")


def test_all_devices_of_a_container_name_the_gpus_of_all_its_claims():
    named = visible_gpus(pod(app=["one", "two"]), {"one": [A, B], "two": [C]})
    assert set(named.values()) == {("GPU-a", "GPU-b", "GPU-c")}
    assert set(named) == {"v/gpu=a", "v/gpu=b", "v/gpu=c"}


def test_containers_with_equal_claims_and_sidecars_see_the_same():
    made = pod(app=["one", "two"], log=["two", "one"])
    made["spec"]["initContainers"] = [{"name": "side", "resources": {"claims": [{"name": "one"}]}}]
    assert set(visible_gpus(made, {"one": [A], "two": [B]}).values()) == {None}
    made["spec"]["initContainers"] = []
    assert set(visible_gpus(made, {"one": [A], "two": [B]}).values()) == {("GPU-a", "GPU-b")}


def test_containers_with_own_claims_see_their_own():
    named = visible_gpus(pod(x=["one"], y=["two"], z=[]), {"one": [A], "two": [B]})
    assert named == {"v/gpu=a": ("GPU-a",), "v/gpu=b": ("GPU-b",)}


def test_a_container_that_names_a_request_sees_its_gpus():
    parts = {"one": [part("a", "r1"), part("b", "r2")]}
    named = visible_gpus(pod(x=["one/r1"], y=["one/r2"]), parts)
    assert named == {"v/gpu=a": ("GPU-a",), "v/gpu=b": ("GPU-b",)}
    both = visible_gpus(pod(x=["one/r1", "one/r2"]), parts)
    assert set(both.values()) == {("GPU-a", "GPU-b")}


def test_containers_with_extended_resources_see_their_own():
    """kube-scheduler makes one claim for all of them."""
    made = pod(x=[], y=["one"])
    mappings = [
        {"containerName": name, "resourceName": "example.com/gpu", "requestName": request}
        for name, request in (("x", "container-0-request-0"), ("y", "container-1-request-0"))
    ]
    status = {"resourceClaimName": "p-extended-resources-1", "requestMappings": mappings}
    made["status"] = {"extendedResourceClaimStatus": status}
    parts = (part("a", "container-0-request-0"), part("b", "container-1-request-0"))
    (entry,) = claim_names(made)
    assert claim_names(made)[entry] == "p-extended-resources-1"
    assert visible_gpus(made, {"one": [C], entry: parts}) == {
        "v/gpu=a": ("GPU-a",),
        "v/gpu=b": ("GPU-c", "GPU-b"),
        "v/gpu=c": ("GPU-c", "GPU-b"),
    }


def test_a_device_that_no_container_gets_is_left_out():
    assert visible_gpus(pod(x=["one"]), {"one": [A], "unused": [B]}).keys() == {"v/gpu=a"}


def test_where_containers_share_only_some_claims_no_device_of_them_names_any():
    named = visible_gpus(
        pod(x=["one", "two"], y=["two"], z=["three"]), {"one": [A], "two": [B], "three": [C]}
    )
    assert named == {"v/gpu=a": None, "v/gpu=b": None, "v/gpu=c": ("GPU-c",)}


@given(st.data())
def test_in_any_order_a_container_sees_all_of_its_own_gpus_or_none(data):
    claims = {name: [part(name), part(name * 2)] for name in "abcd"}
    names = st.lists(st.sampled_from(sorted(claims)), unique=True)
    made = pod(**{f"c{n}": data.draw(names) for n in range(data.draw(st.integers(1, 4)))})
    named = visible_gpus(made, claims)
    for container in containers_of(made["spec"]):
        own = container_parts(made, container, claims)
        gpus = tuple(dict.fromkeys(one.gpu for one in own))
        shuffled = data.draw(st.permutations(own))
        assert {named[one.cdi_id] for one in shuffled} <= {gpus, None}
        assert len({named[one.cdi_id] for one in shuffled}) <= 1


@given(st.lists(st.sampled_from("abcd"), unique=True, min_size=1), st.integers(1, 3))
def test_containers_with_equal_claims_always_see_them(names, containers):
    claims = {name: [part(name)] for name in "abcd"}
    named = visible_gpus(pod(**{f"c{n}": names for n in range(containers)}), claims)
    assert set(named.values()) == {tuple(f"GPU-{name}" for name in sorted(names))}


def test_the_names_of_a_pods_claims_are_in_its_spec_or_its_status():
    made = {
        "spec": {
            "resourceClaims": [
                {"name": "direct", "resourceClaimName": "c1"},
                {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "not-yet", "resourceClaimTemplateName": "t"},
                {"name": "none", "resourceClaimTemplateName": "t"},
            ]
        },
        "status": {
            "resourceClaimStatuses": [
                {"name": "made", "resourceClaimName": "p-made"},
                {"name": "none"},
            ]
        },
    }
    assert claim_names(made) == {"direct": "c1", "made": "p-made"}
