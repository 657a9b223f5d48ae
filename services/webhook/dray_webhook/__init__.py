"""The admission webhook: reads a pod's annotations and injects its claim.

``app`` and ``settings`` start it, ``service`` does the input and output, ``decisions`` is
pure. Nothing here calls the API server.
"""
