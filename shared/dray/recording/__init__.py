"""Recordings: what was observed and decided, as JSON Lines that replay can read.

``journal`` publishes what a service consumes and decides, ``questions`` are the rule inputs in it,
``lines`` defines the lines of a recording, ``file`` reads and writes them, ``recorder`` follows a
bus, ``history`` keeps the lines from before the recording.
"""
