"""``.ci/run``: every stage that a change must pass, with its time and its budget."""
