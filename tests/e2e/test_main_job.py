"""The main job on whole stacks: every service its own process, every fault a real one."""

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dray.api import names
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NODES,
    PODS,
    POOLS,
    Object,
    RefusedError,
)
from dray_cli.demo.manifests import read_manifests
from dray_cli.demo.play import Demo
from dray_cli.replay.run import replay
from dray_cli.trace.files import spans_of_trace
from dray_cli.trace.inputs import read_inputs
from dray_cli.trace.synthesized_spans import spans_of
from dray_sandbox.paths import traces_directory

if TYPE_CHECKING:
    from tests.e2e.conftest import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE, FORMS = EXAMPLES / "01-quick-start", EXAMPLES / "04-forms-of-request"
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


async def test_the_quick_start_gives_every_pod_its_gpu_and_explains_the_one_that_waits(
    cluster: "Cluster",
) -> None:
    report = await Demo(cluster.kube, cluster.bus, EXAMPLE, _silent).run()

    assert report.problems == []
    assert len(report.indicators) == 5
    assert all(found.all_hold for found in report.indicators)
    assert any("virtual_tflops" in line for line in report.waited)
    await cluster.check_nothing_is_oversold()
    for story in report.stories:
        await _check_trace(cluster, story.trace_id, waited=story.name == "needs-every-card")
        await _check_annotations(cluster, story.namespace, story.name)


async def test_a_pod_that_asks_for_the_resource_of_a_device_plugin_gets_a_whole_card(
    cluster: "Cluster",
) -> None:
    container = {"name": "app", "image": "app", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    pod = {"metadata": {"name": "vector-add"}, "spec": {"containers": [container]}}
    cluster.collector.follow("default", "vector-add")
    await cluster.kube.create(PODS, pod, "default")
    await cluster.running("vector-add")

    pod = await cluster.kube.get(PODS, "vector-add", "default")
    (status,) = pod["status"]["resourceClaimStatuses"]
    claim = await cluster.kube.get(CLAIMS, status["resourceClaimName"], "default")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"] == (await cluster.capacity_of(result["device"]))
    await cluster.delete("vector-add")


async def test_pods_created_while_the_claim_controller_was_dead_are_placed_after_it(
    cluster: "Cluster",
) -> None:
    await cluster.stack.kill("claim-controller")
    await cluster.submit("orphan-1", "default")
    await cluster.submit("orphan-2", "default")
    await asyncio.sleep(3)  # the derived template comes this late

    await cluster.stack.restart("claim-controller")

    await cluster.running("orphan-1", "orphan-2")
    await cluster.check_nothing_is_oversold()
    await cluster.delete("orphan-1", "orphan-2")


async def test_another_replica_takes_a_pool_over(cluster: "Cluster") -> None:
    await cluster.stack.kill("allocator-1")
    await cluster.submit("served-1", "default")
    await cluster.submit("served-2", "production-pool")

    await cluster.running("served-1", "served-2")

    await cluster.stack.restart("allocator-1")
    await cluster.stack.kill("allocator-2")
    await cluster.submit("served-3", "default")
    await cluster.running("served-3")
    await cluster.stack.restart("allocator-2")
    await cluster.check_nothing_is_oversold()
    await cluster.delete("served-1", "served-2", "served-3")


async def test_a_node_that_changes_pools_sells_nothing_twice(cluster: "Cluster") -> None:
    """A card of an A100 has room for three pods of 100 TFLOPS, but for two of 16Gi."""
    before = [f"stays-{number}" for number in range(4)]
    for name in before:
        await cluster.submit(name, "default")
    await cluster.running(*before)
    held = {await cluster.node_of(name) for name in before}

    await cluster.kube.patch(
        NODES, "sim-3", {"metadata": {"labels": {names.POOL_LABEL: "production-pool"}}}
    )
    after = [f"moved-{number}" for number in range(4)]
    for name in after:
        await cluster.submit(name, "production-pool", gpu_model="A100")
    await cluster.running(*after)

    assert held == {"sim-3"}
    assert {await cluster.node_of(name) for name in after} == {"sim-3"}
    await cluster.check_nothing_is_oversold()
    await cluster.delete(*before, *after)
    await cluster.kube.patch(
        NODES, "sim-3", {"metadata": {"labels": {names.POOL_LABEL: "default"}}}
    )


async def test_a_pool_that_selects_every_node_takes_none_and_its_pods_hear_why(
    cluster: "Cluster",
) -> None:
    await cluster.submit("before", "default")
    await cluster.running("before")
    everything = {"metadata": {"name": "everything"}, "spec": {"nodeSelector": {}}}
    await cluster.kube.create(POOLS, everything)
    await cluster.submit("waits", "everything", dra_enabled="true")
    await cluster.submit("after", "default")
    await cluster.running("after")

    named = ", ".join(
        f"{node} ({pool})"
        for node, pool in (
            ("sim-1", "my-gpu-pool"),
            ("sim-2", "production-pool"),
            ("sim-3", "default"),
        )
    )
    warning = f"pool everything selects nodes that other pools have: {named}"
    async with asyncio.timeout(45):
        async for _ in cluster.kube.watch(BIND_REQUESTS, "default"):
            requests = (await cluster.kube.list(BIND_REQUESTS, "default")).objects
            if any(warning in (one.get("status") or {}).get("explanation", "") for one in requests):
                break
    await cluster.delete("before", "waits", "after")
    await cluster.kube.delete(POOLS, "everything")


async def test_a_pool_that_does_not_allow_the_namespace_gives_no_devices(
    cluster: "Cluster",
) -> None:
    allowed = {"spec": {"allowedNamespaces": ["team-a"]}}
    await cluster.kube.patch(POOLS, "production-pool", allowed)
    request = {"name": "gpu", "exactly": {"deviceClassName": names.DEVICE_CLASS}}
    claim = {"metadata": {"name": "mine"}, "spec": {"devices": {"requests": [request]}}}
    await cluster.kube.create(CLAIMS, claim, "default")
    container = {"name": "app", "image": "app", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
    }
    await cluster.kube.create(PODS, {"metadata": {"name": "thief"}, "spec": spec}, "default")

    marks = {"annotations": {names.GPUPOOL: "production-pool"}}
    with pytest.raises(RefusedError, match="is fixed when the pod is created"):
        await cluster.kube.patch(PODS, "thief", {"metadata": marks}, "default")
    label = {"labels": {names.POOL_LABEL: "production-pool"}}
    with pytest.raises(RefusedError, match="is fixed when the claim is created"):
        await cluster.kube.patch(CLAIMS, "mine", {"metadata": label}, "default")
    second = {"metadata": {"name": "second", **label}, "spec": claim["spec"]}

    async def create_until_refused() -> None:
        while await cluster.kube.create(CLAIMS, second, "default"):
            await cluster.kube.delete(CLAIMS, "second", "default")

    # What the pool allows reaches the webhook by the bus.
    with pytest.raises(RefusedError, match="does not admit claims of namespace"):
        await asyncio.wait_for(create_until_refused(), 45)
    with pytest.raises(RefusedError, match="does not admit pods of namespace"):
        await cluster.submit("asks", "production-pool")

    await cluster.submit("honest", "default")
    await cluster.running("honest")
    assert not (await cluster.kube.get(CLAIMS, "mine", "default"))["status"].get("allocation")
    await cluster.delete("honest", "thief")
    await cluster.kube.delete(CLAIMS, "mine", "default")
    await cluster.kube.patch(POOLS, "production-pool", {"spec": {"allowedNamespaces": None}})


async def test_pods_that_ask_otherwise_get_it_and_each_container_its_own(
    cluster: "Cluster",
) -> None:
    """The examples' pods, half of them where kube-scheduler binds."""
    await cluster.delete("needs-every-card")  # the quick start's, if that was here before
    pods = [one.object for one in read_manifests(FORMS, "02-*")]
    for number, pod in enumerate(pods):
        pool = "my-gpu-pool" if number % 2 else "default"
        pod["metadata"]["annotations"][names.GPUPOOL] = pool
        cluster.collector.follow("default", pod["metadata"]["name"])
        await cluster.kube.create(PODS, pod, "default")
    created = [pod["metadata"]["name"] for pod in pods]

    await cluster.running(*created)

    asked = ("by-container", "one-of-two")
    reported: dict[str, dict[str, list[str]]] = {}

    def all_annotated(seen: dict[str, Object]) -> bool:
        for name in asked:
            text = seen[name]["metadata"]["annotations"].get(names.CONTAINER_GPU_IDS)
            reported[name] = json.loads(text or "{}")
        return all(reported.values())

    await cluster.until(all_annotated, "the pods' annotations name the cards of their containers")
    counts = {name: {c: len(cards) for c, cards in reported[name].items()} for name in asked}
    assert counts == {
        "by-container": {"warm-up": 1, "encode": 1, "train": 2, "proxy": 0},
        "one-of-two": {"app": 1, "proxy": 0},
    }
    await cluster.check_nothing_is_oversold()
    await cluster.delete(*created)


async def test_nats_restarted_on_an_empty_store_opens_new_logs_and_sells_nothing_twice(
    cluster: "Cluster",
) -> None:
    before = [f"early-{number}" for number in range(4)]
    for name in before:
        await cluster.submit(name, "default")
    await cluster.running(*before)
    epoch = await _epoch(cluster)

    await cluster.stack.empty_nats()
    after = [f"late-{number}" for number in range(8)]
    for name in after:
        await cluster.submit(name, "default")

    await cluster.running(*after)
    assert await _epoch(cluster) > epoch
    await cluster.check_nothing_is_oversold()
    await cluster.delete(*before, *after)


async def test_all_that_was_decided_meanwhile_is_decided_so_again(cluster: "Cluster") -> None:
    """What the tests before this one put all services through, replayed from their journals."""
    # In a thread: the connections go on.
    outcome = await asyncio.to_thread(replay, list(cluster.recorded))

    if outcome.divergence is not None:
        pytest.fail("\n".join(outcome.divergence.lines()))
    assert not outcome.unknown
    for service, tally in outcome.services.items():
        assert tally.compared.total() >= 10, (service, tally)
        assert tally.uncovered <= tally.compared.total(), (service, tally)


async def _check_trace(cluster: "Cluster", trace_id: str, *, waited: bool) -> None:
    """One trace from admission to prepared, every span but the first with a parent in it."""
    folder = traces_directory(cluster.stack.directory)
    # The last span is written when its work has ended, a moment after the pod runs.
    async with asyncio.timeout(20):
        while True:
            if {"execute", "prepare"} <= {s.name for s in spans_of_trace(folder, trace_id)}:
                break
            await asyncio.sleep(0.05)
    spans = spans_of_trace(folder, trace_id)
    services = {"webhook", "claim-controller", "allocator", "node-agent"}
    assert {span.service for span in spans} == services
    names = [span.name for span in spans]
    assert names.count("admission") == names.count("claim") == 1, names
    known = {span.span_id for span in spans}
    assert [span.name for span in spans if span.parent_id not in known] == ["admission"]
    if waited:
        (wait,) = (span for span in spans if span.name == "waiting")
        failed = {s.span_id for s in spans if s.name == "decision" and s.status == "error"}
        assert failed
        assert {link.span_id for link in wait.links} == failed
        assert "virtual_tflops" in str(wait.events[0].attributes)


async def _check_annotations(cluster: "Cluster", namespace: str, name: str) -> None:
    """Without a span, messages and objects tell the same way; even of a pod that is gone."""
    async with asyncio.timeout(20):
        while True:
            found = await read_inputs(cluster.kube, cluster.bus, namespace, name)
            reported = {span.name for span in spans_of(found, time.time())}
            if {"admission", "decision", "execute", "prepare"} <= reported:
                return
            await asyncio.sleep(0.1)  # steps are published off the critical path


async def _epoch(cluster: "Cluster") -> int:
    pool = await cluster.kube.get(POOLS, "default")
    return int(pool["status"]["decisionLog"]["epoch"])


def _silent(text: str) -> None:
    """The report is enough."""
