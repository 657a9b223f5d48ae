"""``dray doctor --deep``: what logs, facts, replicas and claim statuses say, side by side.

* ``snapshot``: the state of all sides, and how it is read
* ``compare``: where two of them differ; pure
* ``claims``: what a claim's log and its status say of each other; pure
* ``differences``: a difference as data, and as a person reads it
* ``learned``: what FragmentationAware decides by; pure
* ``run``: compares two snapshots, so that writes in progress are not reported
"""
