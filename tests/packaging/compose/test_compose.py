"""`docker compose up` with the local API, in a network of its own.

The tests are steps of one story, in their order.
"""

import json
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from tests.packaging.compose.project import (
    KUBECONFIG,
    Project,
    build_prometheus,
    containers,
    kubectl,
    objects,
    podman,
    runs,
    services,
)
from tests.packaging.helm.installation import gpu_pod

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]

PROJECT = Project(["sandbox"])
PROMETHEUS = "http://127.0.0.1:9090/api/v1"
ALLOCATORS = 3
SCRAPED = ("webhook", "claim-controller", *["allocator"] * ALLOCATORS, "sim-1", "sim-2", "sim-3")


@pytest.fixture(scope="module", autouse=True)
def stopped() -> Iterator[None]:
    """Nothing of an earlier run is there, and nothing is left."""
    with PROJECT.clean():
        yield


@pytest.fixture
def prometheus() -> Iterator[None]:
    """That of the profile `observability`."""
    build_prometheus()
    Project(["sandbox", "observability"]).compose("up", "--no-build", "--detach", "prometheus")
    yield
    podman("rm", "--force", "dray_prometheus_1")
    podman("rmi", services()["prometheus"]["image"])


def test_one_command_brings_a_working_system_up() -> None:
    PROJECT.up("--scale", f"allocator={ALLOCATORS}")

    PROJECT.until(KUBECONFIG.exists, "a kubeconfig")
    PROJECT.until(lambda: len(objects("nodes")) == 3, "three nodes")
    PROJECT.until(lambda: _nodes_of("default") == 3, "nodes in the pool")
    PROJECT.until(lambda: objects("mutatingwebhookconfigurations"), "the webhook registered")


def test_a_pod_gets_its_gpu() -> None:
    PROJECT.until(lambda: kubectl("apply", "-f", "-", stdin=gpu_pod("first")), "webhook answers")
    PROJECT.until(lambda: runs("first"), "the pod runs")
    (claim,) = objects("resourceclaims")
    assert claim["status"]["allocation"]["devices"]["results"]


def test_allocators_share_the_pools() -> None:
    for node, pool in (("sim-2", "second"), ("sim-3", "third")):
        kubectl("label", "node", node, f"tensor-fusion.ai/gpupool={pool}")
        spec = {"schedulingConfigTemplate": "default-scheduling-config"}
        made = {"apiVersion": "tensor-fusion.ai/v1", "kind": "GPUPool", "spec": spec}
        kubectl("apply", "-f", "-", stdin=json.dumps(made | {"metadata": {"name": pool}}))

    def serve_one_each() -> bool:
        served_by = {pool["status"].get("servedBy") for pool in objects("gpupools")} - {None}
        return len(served_by) == ALLOCATORS

    PROJECT.until(serve_one_each, f"{ALLOCATORS} allocators serve a pool each")
    for pool in ("second", "third"):
        PROJECT.until(lambda name=pool: _nodes_of(name) == 1, f"the node in {pool}")
        kubectl(
            "apply",
            "-f",
            "-",
            stdin=gpu_pod(pool).replace('gpupool: "default"', f"gpupool: {pool}"),
        )
        PROJECT.until(lambda name=pool: runs(name), f"the pod of {pool} runs")


def test_prometheus_finds_every_service(prometheus: None) -> None:
    def are_scraped() -> bool:
        try:
            with urlopen(f"{PROMETHEUS}/targets") as answer:
                targets = json.load(answer)["data"]["activeTargets"]
        except OSError:
            return False
        return [one["health"] for one in targets] == ["up"] * len(SCRAPED)

    PROJECT.until(are_scraped, f"{SCRAPED} are scraped")
    with urlopen(f"{PROMETHEUS}/rules") as answer:
        (group,) = json.load(answer)["data"]["groups"]
    assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}


def test_everything_is_kept_from_one_start_to_the_next() -> None:
    PROJECT.down()
    PROJECT.up()

    PROJECT.until(lambda: runs("first"), "the pod is there")
    PROJECT.until(lambda: kubectl("apply", "-f", "-", stdin=gpu_pod("again")), "webhook answers")
    PROJECT.until(lambda: runs("again"), "another one runs")


def test_no_container_restarted() -> None:
    restarts = {name: _restarts(name) for name in containers() if name.startswith("dray_")}

    assert {name: count for name, count in restarts.items() if count != "0"} == {}


def test_ports_are_of_this_machine_alone_and_containers_have_bounds() -> None:
    for name, service in services().items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
        assert limits.keys() == {"cpus", "memory"}, name
        assert service["restart"] in ("unless-stopped", "on-failure"), name
        assert service["read_only"], name
        assert not service["image"].endswith(":latest"), name
        assert ":" in service["image"], name


def _nodes_of(pool: str) -> int:
    return int(objects("gpupool", pool)[0]["status"]["nodes"])


def _restarts(container: str) -> str:
    return podman("inspect", "--format", "{{.RestartCount}}", container).strip()
