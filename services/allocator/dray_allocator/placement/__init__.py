"""Where a pod goes among what fits, and why it goes nowhere."""
