"""Types, and the functions that an environment declares on them."""
