"""Carries out decisions: one resumable state machine per pod.

Pure: ``decisions``, ``adoption``, ``binding_conditions``, ``double_allocation_check``,
``in_flight_allocations``, ``executions``, ``rollback_decisions`` and ``unschedulable``.
``executor`` schedules the steps and their retries, ``waiters`` waits for devices, ``steps`` does
one step, ``writes`` makes its request.
"""
