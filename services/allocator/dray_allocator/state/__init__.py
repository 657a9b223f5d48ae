"""Facts and decision logs applied, and what follows from both."""
