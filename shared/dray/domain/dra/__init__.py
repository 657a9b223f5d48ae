"""Dynamic Resource Allocation, the whole of resource.k8s.io/v1 that decides an allocation.

nodes  which nodes a device can be used from     slices   pools, devices, counters
asks   what claims and their requests ask for    results  what an allocation says

These values are close to the API and complete; `dray.domain.devices` and `dray.domain.claims`
hold the part of it that dray's own devices need (docs/adr/0017-dra-as-values.md).
"""
