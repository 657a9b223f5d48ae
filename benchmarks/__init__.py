"""Figures, each reproduced by one command, with the machine named. No test depends on them."""
