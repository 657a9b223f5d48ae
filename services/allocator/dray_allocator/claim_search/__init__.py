"""Search node by node, for pods that the node table cannot decide exactly.

pod_search              what a pod asks for, and the rules that hold for it
visible_devices         what one node sees, and which claims hold it
device_equivalence      equal devices, for the claims of a pod
node_equivalence        equal nodes, for the claims of a pod
node_trial              the result of the search on one node
node_equivalence_cache  results per class of nodes, and the order in which nodes are tried
visible_pools           devices and pools that a node of a class sees
schedule                the best of the nodes that fit, in steps
"""
