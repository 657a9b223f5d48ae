"""Code that two or more of dray's packages import, and nothing else.

Packages, from the bottom: ``api`` (values and rules), ``telemetry`` and ``runtime`` (tracing,
settings, logs, lifetime of a process), ``reasons`` (why a pod waits), ``messages`` (wire types),
``cel`` (device selectors), ``bus`` and ``kube`` (the only adapters to NATS and Kubernetes),
``user_guide_form`` (manifests as the user guide writes them) and ``recording`` (of decisions).
"""
