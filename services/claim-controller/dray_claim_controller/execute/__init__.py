"""Carrying decisions out: one resumable state machine per pod.

``rules``, ``conditions``, ``defence``, ``orders``, ``shares`` and ``withdrawal`` are pure;
``executor`` decides whose turn it is and what is tried again, ``resting`` keeps who waits for
devices, ``steps`` does one step, ``writes`` makes its request.
"""
