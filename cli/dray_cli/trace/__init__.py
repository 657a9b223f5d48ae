"""``dray trace``: a pod's way from admission to prepared, as a waterfall, without any backend.

``spans`` is what a trace consists of; ``files`` reads the spans a local stack wrote,
``history`` makes spans of what the bus and Kubernetes hold, ``waterfall`` (pure) draws them,
``verb`` puts them together.
"""
