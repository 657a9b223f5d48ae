"""Alert rules and queries of the dashboard by Prometheus' own promtool: an alert fires on what it
is for, and not on health."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.generate.observability import ALERTS, ROWS

pytestmark = pytest.mark.packaging

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "helm" / "dray" / "files" / "alerts.yaml"
HEALTHY = {
    'dray_leading{pod="a"}': "1x60",
    'dray_leading{pod="b"}': "0x60",
    'dray_pool_nodes{pool="default"}': "4x60",
    'dray_allocator_serving_domains{pod="a"}': "1x60",
    'dray_allocator_oversold_total{pod="a"}': "3x60",
    "dray_facts_sequence": "100+600x60",
    'dray_allocator_facts_position{pod="a"}': "90+600x60",
    "dray_store_bytes": "100x60",
    "dray_store_limit_bytes": "1000x60",
    "dray_webhook_certificate_expiry_timestamp_seconds": "7776000x60",
    'dray_webhook_admission_seconds_count{outcome="denied"}': "0+1x60",
    'dray_webhook_admission_seconds_count{outcome="allowed"}': "0+1x60",
    'dray_pool_gpus{pool="default",health="unhealthy"}': "0x60",
    "dray_unprepared_pods": "2x4 0x55",
    "dray_node_prepare_failures_total": "5x60",
    "dray_allocator_undecodable_domains": "0x60",
}
"""Series by name, as promtool writes samples: one a minute."""
TROUBLE: dict[str, dict[str, str]] = {
    "DrayNobodyLeads": {'dray_leading{pod="a"}': "0x60"},
    "DrayPoolNotServed": {'dray_allocator_serving_domains{pod="a"}': "0x60"},
    "DrayDoubleAllocation": {'dray_allocator_oversold_total{pod="a"}': "3x50 4x9"},
    "DrayFactsLag": {'dray_allocator_facts_position{pod="a"}': "90+1x60"},
    "DrayStoreFills": {"dray_store_bytes": "850x60"},
    "DrayCertificateExpires": {"dray_webhook_certificate_expiry_timestamp_seconds": "600000x90"},
    "DrayWebhookDeniesAll": {'dray_webhook_admission_seconds_count{outcome="allowed"}': "7x60"},
    "DrayUnhealthyGpus": {'dray_pool_gpus{pool="default",health="unhealthy"}': "1x60"},
    "DrayPodsNotPrepared": {"dray_unprepared_pods": "1x60"},
    "DrayPrepareFails": {"dray_node_prepare_failures_total": "5+1x60"},
    "DrayUndecodableMessages": {"dray_allocator_undecodable_domains": "1x60"},
}
LABELS = {"DrayDoubleAllocation": {"pod": "a"}, "DrayUnhealthyGpus": {"pool": "default"}}


def outcome(folder: Path, series: dict[str, str], alert: str, firing: list[Any], at: str) -> str:
    """What promtool prints; it fails if the alert is in another state."""
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    checked = {"eval_time": at, "alertname": alert, "exp_alerts": firing}
    test = {"interval": "1m", "input_series": inputs, "alert_rule_test": [checked]}
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("alert", [str(one["alert"]) for one in ALERTS])
def test_it_fires_on_trouble_and_not_on_health(tmp_path, alert):
    (rule,) = (one for one in ALERTS if one["alert"] == alert)
    labels = {**rule["labels"], **LABELS.get(alert, {})}
    annotations = {
        name: text.replace("{{ $labels.pool }}", labels.get("pool", ""))
        for name, text in rule["annotations"].items()
    }
    firing = [{"exp_labels": labels, "exp_annotations": annotations}]
    late = "75m" if rule["for"] == "1h" else "55m"

    outcome(tmp_path, HEALTHY, alert, [], "55m")
    outcome(tmp_path, HEALTHY | TROUBLE[alert], alert, firing, late)


def test_a_cluster_where_nothing_runs_is_noticed(tmp_path):
    (rule,) = (one for one in ALERTS if one["alert"] == "DrayNobodyLeads")
    firing = [{"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}]

    outcome(tmp_path, {"up": "0x60"}, "DrayNobodyLeads", firing, "10m")


def test_prometheus_takes_the_configuration_of_compose(tmp_path):
    text = (DEPLOY / "compose" / "prometheus.yaml").read_text()
    path = tmp_path / "prometheus.yaml"
    path.write_text(text.replace("/etc/prometheus", str(RULES.parent)))

    done = subprocess.run(["promtool", "check", "config", path], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_prometheus_can_read_every_query_of_the_dashboard(tmp_path):
    queries = {query for row in ROWS.values() for panel in row for query, _ in panel.queries}
    records = [
        {"record": f"query_{number}", "expr": query.replace("$__rate_interval", "1m")}
        for number, query in enumerate(sorted(queries))
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": records}]}))

    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(records)} rules found" in done.stdout
    assert len(records) > 20


def test_every_alert_has_its_trouble():
    assert TROUBLE.keys() == {one["alert"] for one in ALERTS}
