"""Dashboard and alerts: every query names metrics, and labels of theirs, that a service has."""

import re
from collections import defaultdict
from datetime import UTC, datetime
from types import SimpleNamespace

import prometheus_client
import pytest

from dray.bus.backlog import Backlog
from dray.bus.memory import MemoryBus
from dray.kube.memory import MemoryKube
from dray.kube.request_metrics import RequestMetrics
from dray_allocator.service.telemetry import AllocatorMetrics
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.options import AllocatorOptions
from dray_claim_controller.app import Controller
from dray_claim_controller.metrics import ControllerMetrics
from dray_claim_controller.settings import ControllerSettings
from dray_node_agent.decisions.gpu_holders import HoldingContainer
from dray_node_agent.decisions.gpus import GpuUsage
from dray_node_agent.gpu_metrics import GpuUsageCollector
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_node_agent.metrics import expose as expose_agent
from dray_node_agent.metrics import preparation_times
from dray_webhook.metrics import expose as expose_webhook
from dray_webhook.service.server import AdmissionServer
from tools.generate.observability import ALERTS, ROWS, dashboard

PROMETHEUS_LABELS = {"le", "pod", "instance", "job", "namespace"}
"""Of the scrape, or of a histogram's buckets."""
LABELS_OF_DCGM = {
    *("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"),
    *("GPU_I_PROFILE", "GPU_I_ID", "container", "namespace", "pod"),
}
"""Those of NVIDIA's exporter: of a GPU of the node, and of a container that has it now."""
QUERIES = [query for row in ROWS.values() for panel in row for query, _ in panel.queries]
_NAME = re.compile(r"\bdray_[a-z_]+")
_LABELS = re.compile(r"(?:by \(([^)]*)\))|\{([^}]*)\}")


@pytest.fixture(scope="module")
def metrics() -> dict[str, set[str]]:
    """The labels of each metric, by name."""
    registry = prometheus_client.CollectorRegistry()
    AllocatorMetrics(AllocatorState(AllocatorOptions()), registry)
    RequestMetrics(registry)
    controller = ControllerMetrics(registry)
    Controller(MemoryBus(), MemoryKube(), ControllerSettings(), metrics=controller)
    AdmissionServer({}, host="", port=0, tls=None, body_limit_bytes=0, registry=registry)
    backlog = Backlog(MemoryBus(), capacity=1, what="events")
    expose_webhook(registry, backlog, SimpleNamespace(expires_at=datetime.now(UTC)))
    agent = SimpleNamespace(inventory=lambda: None, generation=0)
    preparer = SimpleNamespace(claims={}, failures=0)
    expose_agent(
        registry, agent, preparer, SimpleNamespace(dropped=()), SimpleNamespace(dropped_events=0)
    )
    preparation_times(registry)
    snapshot = SimulatedGpus("n1", "A100", 2).read()
    usage = tuple(GpuUsage(gpu.uuid, *[1] * 10) for gpu in snapshot.gpus)
    holders = {snapshot.gpus[0].uuid: (HoldingContainer("team", "pod", "app"),)}
    registry.register(GpuUsageCollector("n1", lambda: snapshot, lambda: usage, lambda: holders))
    found: dict[str, set[str]] = defaultdict(set)
    for collector, names in registry._collector_to_names.items():
        labels = set(getattr(collector, "_labelnames", ()))
        for name in names:
            found[name] |= labels
    for metric in registry.collect():  # those of collectors have no other names of labels
        for sample in metric.samples:
            found[sample.name] |= sample.labels.keys() - {"le"}
        found[metric.name] |= set(getattr(metric, "_labelnames", ()))
    return found


@pytest.mark.parametrize("query", [*QUERIES, *(str(alert["expr"]) for alert in ALERTS)])
def test_a_query_names_metrics_and_labels_that_exist(metrics, query):
    names = set(_NAME.findall(query))
    labels = {
        re.split(r"[=!]", label.strip())[0]
        for by, matched in _LABELS.findall(query)
        for label in (by or matched).split(",")
    }

    assert names
    assert names <= metrics.keys()
    assert labels <= PROMETHEUS_LABELS.union(*(metrics[name] for name in names))


def test_no_label_has_values_without_bound(metrics):
    """No label names a pod, claim, node or user: their number grows with the cluster. But for those
    of NVIDIA's exporter, which are bounded by the node's GPUs."""
    bounded = {"step", "reason", "domain", "pool", "health", "use", "amount", "verb", "resource"}
    bounded |= {"code", "path", "outcome"}
    of_dcgm = {name for name in metrics if name.startswith("DCGM_FI_")}

    assert len(of_dcgm) > 10
    assert {name for name in metrics.keys() - of_dcgm if not metrics[name] <= bounded} == set()
    assert {name for name in of_dcgm if metrics[name] != LABELS_OF_DCGM} == set()


def test_panels_do_not_overlap():
    taken = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells


def test_every_alert_says_what_to_do():
    for alert in ALERTS:
        assert alert["annotations"]["summary"]
        assert alert["annotations"]["description"]
        assert alert["labels"]["severity"] in ("critical", "warning")
