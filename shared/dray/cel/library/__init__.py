"""Values, and CEL's functions on them. How functions are called is not part of it."""
