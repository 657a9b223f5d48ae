"""The language of device selectors: CEL in the environment of Dynamic Resource Allocation.

syntax    text → tree, bounded            check     types of that tree, as Kubernetes has them
evaluate  one device at a time, exactly   unparse   tree → text
"""
