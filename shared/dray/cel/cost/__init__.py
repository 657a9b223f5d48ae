"""The cost of an expression at worst, as the API server estimates it at admission."""
