"""What pods find in a cluster besides GPUs: Services, names, service accounts, kubectl's verbs."""

import asyncio
import json
import urllib.request

from tests.real_node.cluster import (
    DEDICATED,
    NODE_OF,
    REACH_THE_API,
    REAL_NODE,
    SHARED,
    RealCluster,
    pod_of,
)

from dray_sandbox.controlplane.build import find_kubectl

pytestmark = REAL_NODE

SERVER = ["sh", "-c", "mkdir /www; hostname > /www/index.html; exec httpd -f -p 8080 -h /www"]
TOLERATE = [{"operator": "Exists"}]
DAEMONS = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "tolerations": TOLERATE,
                "terminationGracePeriodSeconds": 0,  # its first process ignores SIGTERM
                "containers": [
                    {
                        "name": "app",
                        "image": "app",
                        "command": SERVER,
                        "readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1},
                    }
                ],
            },
        },
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
}


async def test_a_service_reaches_pods_of_every_node_by_name(real_cluster: RealCluster) -> None:
    objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": [DAEMONS, SERVICE]})
    await real_cluster.kubectl("apply", "-f", "-", stdin=objects)
    await real_cluster.kubectl("rollout", "status", "daemonset/web", "--timeout=60s")
    await real_cluster.submit("client", DEDICATED)
    await real_cluster.running("client")
    pods = {name for name in await real_cluster.pods() if name.startswith("web-")}

    async def all_answered() -> bool:
        ask = "for i in 1 2 3 4 5 6 7 8; do wget -qO- http://web.default/; done"
        return set((await real_cluster.shell("client", ask)).split()) == pods

    assert len(pods) == len(NODE_OF)
    await real_cluster.until(all_answered, f"answers of {pods}")


async def test_a_pod_is_a_user_by_its_service_account(real_cluster: RealCluster) -> None:
    await real_cluster.submit("account", SHARED)
    await real_cluster.running("account")
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    token = await real_cluster.shell("account", f"cat {folder}/token")
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }
    answer = await real_cluster.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review))
    user = json.loads(answer)["status"]["user"]

    assert user["username"] == "system:serviceaccount:default:default"
    assert user["extra"]["authentication.kubernetes.io/node-name"] == [NODE_OF[SHARED]]
    assert await real_cluster.shell("account", REACH_THE_API) == "reached"


async def test_logs_exec_and_port_forward_work(real_cluster: RealCluster) -> None:
    serve = {"name": "app", "image": "app", "command": SERVER}
    await real_cluster.create(
        pod_of("reached", SHARED, containers=[serve], terminationGracePeriodSeconds=0)
    )
    await real_cluster.running("reached")
    await real_cluster.submit("prints", SHARED)
    await real_cluster.running("prints")

    assert await real_cluster.shell("reached", "cat /www/index.html") == "reached"
    assert "NVIDIA_VISIBLE_DEVICES=GPU-" in await real_cluster.kubectl("logs", "prints")
    forward = await asyncio.create_subprocess_exec(
        *(str(find_kubectl()), "--kubeconfig", real_cluster.stack.record.kubeconfig),
        *("port-forward", "pod/reached", ":8080"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert forward.stdout is not None
        line = (await forward.stdout.readline()).decode()
        port = line.split(" -> ")[0].rpartition(":")[2]
        assert await asyncio.to_thread(fetch, f"http://127.0.0.1:{port}/") == "reached\n"
    finally:
        forward.terminate()
        await forward.wait()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        content: bytes = answer.read()
    return content.decode()
