"""``dray trace``: a pod's way from admission to prepared, as a waterfall, without any backend.

``spans`` is what a trace consists of; ``files`` reads the spans a local stack wrote,
``inputs`` reads bus and Kubernetes, and ``synthesized_spans`` makes spans of them,
``waterfall`` (pure) draws them, ``verb`` puts them together.
"""
