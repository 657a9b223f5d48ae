"""``dray doctor --deep``: what logs, facts, replicas and claim statuses say, side by side.

* ``sight``: what one look saw, and how it is read
* ``compare``: where two of them differ; pure
* ``claims``: what a claim's log and its status say of each other; pure
* ``differences``: a difference as data, and as a person reads it
* ``learned``: what FragmentationAware decides by; pure
* ``look``: looks twice, so that what is merely under way is not told
"""
