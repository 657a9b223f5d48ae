"""What exists: Kubernetes objects folded into one picture, and facts made from it.

``picture``, ``facts``, ``membership``, ``capacity`` and ``outbox`` are pure; ``watching`` and
``publisher`` carry them out.
"""
