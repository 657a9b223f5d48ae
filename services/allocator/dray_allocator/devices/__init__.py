"""Structured parameters: which devices claims get on one node, as kube-scheduler decides it.

The search, for devices of any driver:

allocate      the entry point         versions          differences between versions and gates
pools         slices → pools          node_selection    whether a slice is for a node
requirements  validated requests      selectors         CEL, once per request and device
search        depth-first search      allocation_state  allocate one more device, and undo it
capacity      request policies        ranges            valid ranges with minimum and step
counters      shared counters         constraints       attributes that must match or differ
usage         what decided pods use   results           AllocationResults
budget        limit of tried devices  links             how devices are connected
amounts       quantities as in Go     ordered_search    best devices first; connected devices
candidates    devices to try          devices_in_use    what allocated claims use
errors        why an attempt ends     visible_pools, visible_devices   what a node can use
node_equivalence, device_equivalence  nodes and devices with equal results

The devices that the node table reads (cards), and the requests for them:

published_devices   the cards of each node: devices with values computed from them;
                    published_capacity and device_taints
table_scope         what the node table can decide
selector_cache      results of selectors, once per distinct device
driver_parameters   dray's opaque configuration in a claim; percentages
device_requests     requests for cards; node_search runs the search on the cards of one node

Pure: results depend on the arguments only.
"""
