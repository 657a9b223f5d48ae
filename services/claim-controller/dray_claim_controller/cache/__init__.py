"""The watched Kubernetes objects, and lookups in them. Pure; nothing is decided here.

``object_cache`` applies the events of ``informers``; ``rule_recorder`` records the events and the
answers of rules.
"""
