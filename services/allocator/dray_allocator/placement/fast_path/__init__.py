"""The fast path: the node and devices of a pod, by what the node table can decide exactly.

Scope: claims and devices that ``devices.table_scope`` does not exclude, which are requests for a
number of a node's own devices with selectors, capacities, tolerations, constraints, preferences and
link levels. Within it, the search over all devices finds the same node, devices, consumed capacity
and score. If the fast path finds nothing, neither does the search. A property test compares both
(``tests/unit/allocator/test_fast_path.py``).

``table_choice`` is the only way in: an import contract refuses imports of the other modules.
"""
