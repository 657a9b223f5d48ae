"""Carries out decisions: one resumable state machine per pod.

``decisions`` holds the rules. ``executor`` schedules the steps and their retries, ``waiters`` waits
for devices, ``steps`` does one step, ``writes`` makes its request.
"""
