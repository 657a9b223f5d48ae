"""Scores of nodes and devices by placement policy, of a pool or a pod."""
