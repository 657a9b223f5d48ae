"""Builds Go programs from small modules of this repository, for tests and local stacks."""
