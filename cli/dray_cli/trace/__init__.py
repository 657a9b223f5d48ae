"""``dray trace``: a pod's spans from admission to prepared, as a waterfall, without any backend.

``spans`` defines the parts of a trace; ``files`` reads the spans that a local stack wrote;
``inputs`` reads bus and Kubernetes, and ``synthesized_spans`` makes spans from this;
``waterfall`` and ``picture`` (both pure) draw the spans; ``verb`` is the command.
"""
