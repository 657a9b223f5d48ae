"""``dray trace``: a pod's way from admission to prepared, as a waterfall, without any backend.

``spans`` is what a trace consists of; ``files`` reads the spans a local stack wrote,
``material`` reads what the bus and Kubernetes hold, and ``told`` makes spans of it,
``waterfall`` (pure) draws them, ``verb`` puts them together.
"""
