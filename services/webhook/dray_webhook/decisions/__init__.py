"""Admission decisions: pure functions of the review, the view and the settings."""
