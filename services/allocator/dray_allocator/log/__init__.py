"""The fold of a domain's decision log, and how reservations end."""
