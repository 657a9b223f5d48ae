"""Values and rules of device allocation. Standard library only; nothing awaits.

The dataclasses here are also what wire messages carry, so that a device, a claim or
an allocation has one definition. Quantities travel as the strings Kubernetes writes.
"""
