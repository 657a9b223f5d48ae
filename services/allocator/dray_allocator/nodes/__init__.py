"""The node table: which nodes fit a pod, and which is best, without a look at every node.

table             one pool's nodes and devices as columns, with a log of the nodes that changed
table_columns     its columns: a node has a row, its devices a stretch of places
columns           arrays that grow; which devices are whose
source            where the table reads the current values
equivalence       nodes and devices in classes, as fine as some plan needs
equivalence_keys  the properties that put a device or a node into a class
plan              what pods of one signature need, as numbers per class
index             one signature's nodes in order of preference; catches up with the table's log
keys              the least of many keys, by row
tie_break         rows that have the same place in the order of ties
load              loads of nodes and devices in millionths, and ties by a hash
ratings           what an index and a search ask of a placement policy
predicates        whether a node takes a pod
assumed_pods      what scheduled pods take of their nodes until the published sums have it
tables            the tables of all pools and their indexes, within bounds

An index gives a necessary condition: a node that it skips does not fit. The node that is chosen is
checked exactly, by ``predicates`` and ``devices``, before it is used;
``docs/adr/0021-a-table-per-pool.md`` says why this is enough.
"""
