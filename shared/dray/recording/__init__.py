"""Recordings: observations and decisions, as JSON Lines that replay can read.

``journal`` publishes what a service consumes and decides, ``questions`` are its rule inputs,
``lines`` defines the lines of a recording, ``file`` reads and writes them, ``recorder`` follows a
bus, ``history`` keeps the lines from before the recording.
"""
