"""The rules of execution: each step of a decision, from observation alone. Pure."""
