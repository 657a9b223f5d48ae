"""The node table: filter and score the nodes of a pool without evaluating every node per pod.

table             the nodes and cards of one pool as columns (one row per node, one place per
                  card), with a log of changed nodes
columns           growing NumPy arrays, and ranges of indexes in them
equivalence       equivalence classes ("kinds") of nodes and of cards
equivalence_keys  the properties that distinguish kinds
plan              what pods of one signature need, as arrays by kind
index             the nodes in the order of their scores, for one signature
tie_break         tie breaks by a hash, and rows with equal ones
ratings           the interface of placement policies
predicates        kube-scheduler's filters
tables            the tables and indexes of all pools, limited in number

An index never skips a node that fits. The best node is checked again, by ``predicates`` and
``devices``, before it is used; ``docs/adr/0021-a-node-table-per-pool.md`` explains why this is
correct.
"""
