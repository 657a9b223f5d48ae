"""Kubernetes objects as ``dray.api`` values, and allocations back. Pure.

Objects must be as an API server returns them: validated and with defaults.
"""

from dray.kube.convert_claims import (
    UNREADABLE,
    allocation_from,
    allocation_to,
    claim_from,
    claim_from_fields,
    claim_spec_from,
    status_to,
    why_unreadable,
)
from dray.kube.convert_devices import class_from, slice_from, taint_rule_from
from dray.kube.convert_groups import group_key, group_member, pod_group_from, queue_from
from dray.kube.convert_metadata import revision_of, time_from, time_to
from dray.kube.convert_needs import given_by_classes, host_ports, pod_needs
from dray.kube.convert_pods import node_from, pod_from
from dray.kube.convert_pools import policy_from, pool_from
from dray.kube.convert_requests import Requests, is_resized, requests_of

__all__ = [
    "UNREADABLE",
    "Requests",
    "allocation_from",
    "allocation_to",
    "claim_from",
    "claim_from_fields",
    "claim_spec_from",
    "class_from",
    "given_by_classes",
    "group_key",
    "group_member",
    "host_ports",
    "is_resized",
    "node_from",
    "pod_from",
    "pod_group_from",
    "pod_needs",
    "policy_from",
    "pool_from",
    "queue_from",
    "requests_of",
    "revision_of",
    "slice_from",
    "status_to",
    "taint_rule_from",
    "time_from",
    "time_to",
    "why_unreadable",
]
