"""The language of device selectors: CEL in the environment of Dynamic Resource Allocation.

syntax    text → tree, bounded                    unparse   tree → text
check     the tree's types, as Kubernetes sees    signatures  the functions and their overloads
evaluate  one device at a time, exactly, and why  device    what a selector sees of a device

Behind ``evaluate``: ``closures`` (nodes), ``access``, ``operators``, ``functions``, ``strings``,
``lists``, ``conversions``, ``loops`` (macros), ``patterns`` (the door to RE2), ``work`` (limits).
"""
