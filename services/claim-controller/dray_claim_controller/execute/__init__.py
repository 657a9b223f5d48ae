"""Carrying decisions out: one resumable state machine per pod.

``rules``, ``defence``, ``orders``, ``shares`` and ``withdrawal`` are pure; ``executor`` walks
the steps, ``writes`` does what a step says.
"""
