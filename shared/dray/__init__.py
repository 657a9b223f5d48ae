"""What two or more of dray's services import, and nothing else.

Rooms, from the bottom: ``domain`` (values and rules), ``messages`` (wire types),
``bus`` and ``kube`` (the only doors to NATS and Kubernetes), ``cel`` and ``seed``
(the language of devices and the form users write), ``runtime`` and ``telemetry``
(what every process needs around its work).
"""
