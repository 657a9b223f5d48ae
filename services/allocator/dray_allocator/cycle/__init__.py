"""One step of a serving replica: what ended, which pods are scheduled, the records of both."""
