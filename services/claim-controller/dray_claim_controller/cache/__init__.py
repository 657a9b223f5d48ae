"""The watched objects of Kubernetes, and what is looked up in them. Nothing is decided here.

``informers`` watches; ``object_cache`` applies the events; ``rule_recorder`` records the events and
the answers of rules. All other modules are pure.
"""
