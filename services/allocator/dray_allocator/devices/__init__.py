"""Structured parameters: which devices claims get on one node, as kube-scheduler decides it.

The search, for devices of any driver; it imports none of the modules listed below it:

allocate      the way in              versions          what versions with their gates differ in
pools         slices → pools          node_selection    whether a node is reached
requirements  requests, checked       selectors         CEL, once per request and device
search        depth first             allocation_state  all that one more device changes
capacity      request policies        ranges            with minimum and step
counters      shared by devices       constraints       attributes that must match or differ
usage         what claims hold        results           the answer in the API's terms
budget        how long it may take    links             how devices are connected
amounts       as Go holds them        ordered_search    in another order; connected devices

Devices that the node table reads, and claims in their form:

published_device    a device with what is computed from it; published_capacity
node_devices        the devices of each node; their device_usage and device_taints
table_scope         what the node table can decide
selector_cache      selectors, once per distinct device
driver_parameters   dray's part of a claim; percentages
device_requests     what a request asks of these devices; node_search searches them

Pure: the same question has the same answer, and nothing is asked but what is given.
"""
