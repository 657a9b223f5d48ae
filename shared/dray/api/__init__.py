"""Values and rules of device allocation. Standard library only; nothing awaits.

Wire messages contain the same dataclasses, so that a device, a claim or an allocation has one
definition. Quantities are sent as the strings that Kubernetes writes.
"""
