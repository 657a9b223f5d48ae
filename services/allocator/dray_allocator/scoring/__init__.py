"""Scores of nodes and devices, by the placement policy of a pool or a pod."""
