"""Publishes facts, fenced by the term, and the server's feature gates."""
