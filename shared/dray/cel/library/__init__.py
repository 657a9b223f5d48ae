"""Values, and what the functions of CEL do to them; nothing of how they are called."""
