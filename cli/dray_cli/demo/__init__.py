"""``dray demo``: the quick start, from manifests to running pods, shown as one timeline per pod.

``manifests`` reads and converts the example files, ``collector`` watches Kubernetes and the bus,
``story`` (pure) turns what it saw into a timeline, ``indicators`` checks the success indicators
of the user guide (§3.5), ``play`` runs all of them, ``verb`` starts the stack for them.
"""
