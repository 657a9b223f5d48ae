"""Generates the recordings that tests replay: ``python -m dray_sandbox.recordings FOLDER``."""
