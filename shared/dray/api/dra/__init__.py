"""The parts of resource.k8s.io/v1 that decide an allocation, in full.

nodes  the nodes that can use a device    slices   pools, devices, counters
asks   claims and their requests          results  allocation results

These values are close to the API and complete; `dray.api.devices` and `dray.api.claims`
hold the part that dray's own devices need (docs/adr/0017-dra-as-values.md).
"""
