"""The functions that expressions may call, as data: one dictionary of forms per library."""
