"""Requests are counted by what they concern, never by names of objects."""

import prometheus_client
import pytest

from dray.kube.ports import CLAIMS, NODES, PODS, POOLS
from dray.kube.request_metrics import RequestMetrics, resource_of


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        (PODS.path(), "pods"),
        (PODS.path("team", "a"), "pods"),
        (PODS.path("team", "a", "binding"), "pods/binding"),
        (CLAIMS.path("team", "namespaces", "status"), "resourceclaims/status"),
        (NODES.path("", "n1"), "nodes"),
        (POOLS.path("", "default", "status"), "gpupools/status"),
        ("/api/v1/namespaces", "namespaces"),
        ("/api/v1/namespaces/team", "namespaces"),
        ("/version", "other"),
        ("/readyz", "other"),
    ],
)
def test_a_path_is_counted_as_its_resource(path, resource):
    assert resource_of(path) == resource


def test_answers_are_counted_by_verb_and_code():
    registry = prometheus_client.CollectorRegistry()
    metrics = RequestMetrics(registry)
    metrics.answered("PATCH", CLAIMS.path("team", "a", "status"), 200)
    metrics.answered("PATCH", CLAIMS.path("team", "b", "status"), 200)
    metrics.answered("POST", PODS.path("team", "a", "binding"), None)

    def count(**labels: str) -> float | None:
        return registry.get_sample_value("dray_kube_requests_total", labels)

    assert count(verb="patch", resource="resourceclaims/status", code="200") == 2
    assert count(verb="create", resource="pods/binding", code="none") == 1
