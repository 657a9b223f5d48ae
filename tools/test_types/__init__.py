"""Finds names that tests and benchmarks use and that do not exist; ``make check`` runs it."""
