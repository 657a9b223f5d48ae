"""The use of GPUs, under the names of NVIDIA's DCGM exporter."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from dray.api.names import DRA_ENABLED, GPU_SHARE_RESOURCE, SHAPE
from dray.api.pods import accounting_claim
from dray.kube.convert_pods import claim_names
from dray_node_agent.decisions import gpu_holders as gpu_holders_module
from dray_node_agent.decisions.cdi import cdi_id
from dray_node_agent.decisions.gpu_holders import (
    MOST_HOLDERS,
    HoldingContainer,
    gpu_holders,
    must_list_claims,
)
from dray_node_agent.decisions.gpus import GpuUsage
from dray_node_agent.decisions.inventory import NodeInventory, NodeState
from dray_node_agent.decisions.listed_containers import ListedContainer
from dray_node_agent.decisions.prepared_claim import PreparedClaim, PreparedDevice
from dray_node_agent.gpu_metrics import GpuUsageCollector
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus

SNAPSHOT = SimulatedGpus("n1", "A100", 2).read()
GPUS = NodeInventory(SNAPSHOT, NodeState("n1")).published_gpus
FIRST, SECOND = GPUS
UUIDS = [gpu.uuid for gpu in SNAPSHOT.gpus]


def claim(name, *devices):
    return PreparedClaim(
        uid=name,
        namespace="team-a",
        name=name,
        phase="PrepareCompleted",
        devices=tuple(
            PreparedDevice(request="gpu", pool="n1", device=one, cdi_ids=(cdi_id(name, one),))
            for one in devices
        ),
        cdi={},
    )


def pod(name, claims, **containers):
    """``containers``: the entries of claims that each refers to."""
    return {
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {
            "resourceClaims": [
                {"name": entry, "resourceClaimName": one} for entry, one in claims.items()
            ],
            "containers": [
                {"name": container, "resources": {"claims": [{"name": one} for one in entries]}}
                for container, entries in containers.items()
            ],
        },
    }


def test_the_holders_of_a_gpu_are_the_containers_that_refer_to_its_claim():
    pods = [
        pod("train", {"g": "one"}, app=["g"], log=[]),
        pod("share", {"g": "two", "h": "unprepared"}, a=["g"], b=["g", "h"]),
    ]
    found = gpu_holders(None, pods, [claim("one", FIRST), claim("two", FIRST, SECOND)], GPUS)
    train = HoldingContainer("team-a", "train", "app")
    shared = [HoldingContainer("team-a", "share", name) for name in "ab"]
    assert found == {
        GPUS[FIRST].gpu.uuid: (*shared, train),
        GPUS[SECOND].gpu.uuid: tuple(shared),
    }


def listed(pod, container, *claims, namespace="team-a", **ids):
    """``ids``: given by the device plugin."""
    names = frozenset((namespace, name) for name in claims)
    return ListedContainer(namespace=namespace, pod=pod, container=container, claims=names, **ids)


def test_the_kubelet_says_which_containers_hold_their_claims():
    pods = [
        pod("runs", {"g": "one"}, app=["g"]),
        pod("not-yet-admitted", {"g": "one"}, app=["g"]),
    ]
    found = gpu_holders([listed("runs", "app", "one")], pods, [claim("one", FIRST)], GPUS)
    assert found == {UUIDS[0]: (HoldingContainer("team-a", "runs", "app"),)}
    assert gpu_holders([], pods, [claim("one", FIRST)], GPUS) == {}


def test_what_the_kubelet_says_counts_if_the_pod_is_not_known_here():
    """The watch is behind."""
    lists = [listed("new", "app", "one", "not-prepared")]
    holders = {UUIDS[0]: (HoldingContainer("team-a", "new", "app"),)}
    assert gpu_holders(lists, [], [claim("one", FIRST)], GPUS) == holders
    unallocated = [pod("new", {}, app=[])]
    assert gpu_holders(lists, unallocated, [claim("one", FIRST)], GPUS) == holders


def test_a_listed_container_holds_a_gpu_only_while_its_claim_is_prepared():
    """The list is seconds old: the GPU may belong to another tenant now."""
    lists = [listed("ended", "app", "former", namespace="tenant-b")]
    found = gpu_holders(lists, [pod("runs", {"g": "one"}, app=["g"])], [claim("one", FIRST)], GPUS)
    assert found == {}
    assert gpu_holders([listed("ended", "app", "one")], [], [], GPUS) == {}


@pytest.mark.parametrize(
    ("change", "must"),
    [
        ({}, True),
        ({"status": {"phase": "Pending"}}, False),
        ({"metadata": {"namespace": "team-a", "name": "p", "deletionTimestamp": "now"}}, False),
        ({"metadata": {"namespace": "tenant-b", "name": "p"}}, False),
    ],
    ids=["running", "not yet", "ending", "another claim of that name"],
)
def test_the_kubelet_must_list_claims_of_running_pods(change, must):
    one = pod("p", {"g": "one"}, app=["g"]) | {"status": {"phase": "Running"}} | change
    assert must_list_claims([one], [claim("one", FIRST)]) == must
    assert not must_list_claims([one], [])


def test_a_container_that_names_a_request_holds_its_gpu_alone():
    """The kubelet lists all devices of the claim for each container that refers to it."""
    devices = tuple(
        PreparedDevice(request=name, pool="n1", device=device, cdi_ids=(cdi_id("one", device),))
        for name, device in (("a", FIRST), ("b", SECOND))
    )
    both = msgspec.structs.replace(claim("one"), devices=devices)
    one = pod("train", {"g": "one"}, first=["g"], second=["g"], both=["g"])
    for container, request in zip(one["spec"]["containers"], "ab", strict=False):
        container["resources"]["claims"] = [{"name": "g", "request": request}]
    lists = [listed("train", name, "one") for name in ("first", "second", "both")]
    shared = HoldingContainer("team-a", "train", "both")
    assert gpu_holders(lists, [one], [both], GPUS) == {
        UUIDS[0]: (shared, HoldingContainer("team-a", "train", "first")),
        UUIDS[1]: (shared, HoldingContainer("team-a", "train", "second")),
    }


def test_a_container_with_ids_of_the_device_plugin_holds_the_gpus_of_its_pods_claim():
    one = pod("plain", {}, app=[], log=[])
    one["metadata"] |= {"uid": "u", "annotations": {SHAPE: "{}", DRA_ENABLED: "false"}}
    for container in one["spec"]["containers"]:
        container["resources"]["limits"] = {GPU_SHARE_RESOURCE: "1"}
    lists = [listed("plain", "app", ids={GPU_SHARE_RESOURCE: ("gpu-share-3",)})]
    found = gpu_holders(lists, [one], [claim(accounting_claim("u"), SECOND)], GPUS)
    assert found == {UUIDS[1]: (HoldingContainer("team-a", "plain", "app"),)}


def test_a_pod_with_very_many_containers_has_no_series_for_each_and_hides_no_other():
    names = [f"c-{number}" for number in range(MOST_HOLDERS + 100)]
    lists = [listed("swarm", name, "one") for name in names]
    lists.append(listed("victim", "app", "one"))
    found = gpu_holders(lists, [], [claim("one", FIRST)], GPUS)
    assert len(found[UUIDS[0]]) == MOST_HOLDERS
    assert HoldingContainer("team-a", "victim", "app") in found[UUIDS[0]]
    assert list(found[UUIDS[0]]) == sorted(found[UUIDS[0]])


def test_each_pod_is_looked_at_once(monkeypatch):
    looked = []
    monkeypatch.setattr(
        gpu_holders_module, "claim_names", lambda pod: looked.append(1) or claim_names(pod)
    )
    names = [f"c-{number}" for number in range(50)]
    one = pod("swarm", {"g": "one"}, **{name: ["g"] for name in names})
    lists = [listed("swarm", name, "one") for name in names]
    assert len(gpu_holders(lists, [one], [claim("one", FIRST)], GPUS)[UUIDS[0]]) == 50
    assert len(looked) == 1


def page(snapshot, *usage, **holders):
    registry = CollectorRegistry()
    registry.register(
        GpuUsageCollector("n1", lambda: snapshot, lambda: usage, lambda: holders.get("by", {}))
    )
    return generate_latest(registry).decode().splitlines()


def test_a_gpu_has_a_series_for_each_container_that_holds_it():
    usage = GpuUsage(
        UUIDS[0], 2**30, 70, 30, 61, 250.5, 12, 1410, 1215, ecc_corrected=3, ecc_uncorrected=0
    )
    holders = {
        UUIDS[0]: (HoldingContainer("team-a", "train", "app"), HoldingContainer("team-a", "b", "c"))
    }
    lines = page(SNAPSHOT, usage, by=holders)
    values = {line.split("{")[0]: line.rsplit(" ", 1)[1] for line in lines if line[0] != "#"}
    assert values == {
        "DCGM_FI_DEV_FB_USED": "1024.0",
        "DCGM_FI_DEV_FB_FREE": str(39.0 * 1024),
        "DCGM_FI_DEV_GPU_UTIL": "70.0",
        "DCGM_FI_DEV_MEM_COPY_UTIL": "30.0",
        "DCGM_FI_DEV_GPU_TEMP": "61.0",
        "DCGM_FI_DEV_POWER_USAGE": "250.5",
        "DCGM_FI_DEV_SM_CLOCK": "1410.0",
        "DCGM_FI_DEV_MEM_CLOCK": "1215.0",
        "DCGM_FI_DEV_XID_ERRORS": "0.0",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "12.0",
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "3.0",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "0.0",
    }
    series = [line for line in lines if line.startswith("DCGM_FI_DEV_GPU_UTIL{")]
    assert len(series) == 2
    for label in (
        'gpu="0"',
        f'UUID="{UUIDS[0]}"',
        'pci_bus_id="00000000:01:00.0"',
        'device="nvidia0"',
        'modelName="NVIDIA A100-SXM4-40GB"',
        'Hostname="n1"',
        'namespace="team-a"',
        'pod="train"',
        'container="app"',
    ):
        assert label in series[0]


def test_what_the_driver_does_not_say_has_no_series():
    assert page(None, GpuUsage(UUIDS[0])) == []
    assert page(SNAPSHOT) == []
    lines = page(SNAPSHOT, GpuUsage(UUIDS[1], xid=79), GpuUsage("GPU-gone", 1))
    samples = [line for line in lines if line[0] != "#"]
    assert len(samples) == 1
    assert samples[0].startswith("DCGM_FI_DEV_XID_ERRORS{")
    assert samples[0].endswith(" 79.0")
    assert 'pod=""' in samples[0]


def test_instances_name_their_card_and_profile():
    card = SNAPSHOT.gpus[1]
    instance = msgspec.structs.replace(
        card,
        uuid="MIG-1",
        parent_uuid=card.uuid,
        mig_profile="1g.5gb",
        mig_id=7,
        memory_bytes=5 * 2**30,
    )
    split = msgspec.structs.replace(SNAPSHOT, gpus=(*SNAPSHOT.gpus, instance))
    lines = page(split, GpuUsage("MIG-1", memory_used_bytes=2**30))
    (free,) = [line for line in lines if line.startswith("DCGM_FI_DEV_FB_FREE{")]
    assert 'gpu="1"' in free
    assert 'GPU_I_PROFILE="1g.5gb"' in free
    assert 'GPU_I_ID="7"' in free
    assert free.endswith(" 4096.0")
