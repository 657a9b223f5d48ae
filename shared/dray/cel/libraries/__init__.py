"""The functions of CEL by library: what they do to values, nothing of how they are called."""
