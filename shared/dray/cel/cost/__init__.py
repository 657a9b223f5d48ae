"""The worst-case cost of an expression, as the API server estimates it at admission."""
