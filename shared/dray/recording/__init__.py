"""Recordings: what was observed and decided, as JSON Lines that replay can read.

``lines`` says what a line may be, ``file`` reads and writes them, ``recorder`` follows a bus.
"""
