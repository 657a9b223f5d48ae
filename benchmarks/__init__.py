"""Figures, each reproduced by one command that names the machine. No test depends on them."""
