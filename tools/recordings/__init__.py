"""Generates the recordings that tests replay: ``python -m tools.recordings FOLDER``."""
