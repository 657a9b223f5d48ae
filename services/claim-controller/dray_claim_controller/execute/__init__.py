"""Carrying decisions out: one resumable state machine per pod.

``rules``, ``defence``, ``orders``, ``shares`` and ``withdrawal`` are pure; ``executor`` decides
whose turn it is and what is tried again, ``steps`` does one step, ``writes`` makes its request.
"""
