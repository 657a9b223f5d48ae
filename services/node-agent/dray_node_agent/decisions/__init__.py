"""Decisions of the node-agent: pure functions of GPUs, node state, claims and slices."""
