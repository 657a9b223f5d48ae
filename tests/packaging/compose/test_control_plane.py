"""`docker compose --profile control-plane up`: Kubernetes in place of the local API.

The images are made of the programs that the real control plane was built of, since the official
ones can't be had everywhere: names, networks, volumes, users and flags are those of the compose
file, but for etcd's.
"""

from collections.abc import Iterator

import pytest
from tests.packaging.compose.project import (
    HERE,
    KUBECONFIG,
    KUBERNETES,
    Project,
    build_kubernetes,
    containers,
    kubectl,
    objects,
    podman,
    runs,
    services,
)
from tests.packaging.helm.installation import gpu_pod

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300), pytest.mark.long]

PROJECT = Project(
    ["control-plane"], [HERE / "etcd.yaml"], settings=(("ALLOCATING_SCHEDULER", "true"),)
)


@pytest.fixture(scope="module", autouse=True)
def started() -> Iterator[None]:
    """Kubernetes, dray, and nothing of them afterwards."""
    build_kubernetes()
    try:
        with PROJECT.clean():
            PROJECT.up()
            yield
    finally:
        podman("rmi", "--force", *(services()[name]["image"] for name in KUBERNETES))


def test_a_pod_gets_its_gpu() -> None:
    PROJECT.until(KUBECONFIG.exists, "a kubeconfig")
    PROJECT.until(lambda: objects("gpupool", "default")[0]["status"]["nodes"] == 3, "three nodes")
    PROJECT.until(lambda: kubectl("apply", "-f", "-", stdin=gpu_pod("first")), "webhook answers")
    PROJECT.until(lambda: runs("first"), "the pod runs")

    (claim,) = objects("resourceclaims")
    assert claim["status"]["allocation"]["devices"]["results"]
    assert "gitVersion" in kubectl("version", "-o", "yaml")
    assert not any("api_1" in name for name in containers())


def test_kube_scheduler_allocates_in_its_pools() -> None:
    patch = '{"spec": {"owner": "kube-scheduler"}}'
    kubectl("delete", "pod", "first", "--grace-period=0", "--force")
    kubectl("patch", "gpupool", "default", "--type=merge", "-p", patch)
    kubectl("wait", "--for=condition=Ready", "gpupool/default", "--timeout=60s")

    kubectl("apply", "-f", "-", stdin=gpu_pod("second"))
    PROJECT.until(lambda: runs("second"), "the pod runs")
