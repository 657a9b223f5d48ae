"""Decides PodGroups: pods that are bound together or not at all."""
