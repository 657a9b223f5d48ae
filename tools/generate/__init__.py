"""Generators of files that are committed, so that a change of them shows in review."""
