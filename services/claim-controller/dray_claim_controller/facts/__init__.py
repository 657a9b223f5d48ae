"""Facts: built from the cache, and published on the bus.

``publisher`` and ``feature_gates`` publish. All other modules are pure.
"""
