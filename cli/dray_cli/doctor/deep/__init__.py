"""``dray doctor --deep``: compares decision logs, facts, replicas and claim statuses.

* ``snapshot``: the state of all sides, and how it is read
* ``compare``: where two sides differ; pure
* ``claims``: compares a claim's decision log with its status; pure
* ``differences``: a difference as data and as text
* ``fragmentation_data``: the data that FragmentationAware uses; pure
* ``run``: compares two snapshots, so that writes in progress are not reported
"""
