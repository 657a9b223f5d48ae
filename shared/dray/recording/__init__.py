"""Recordings: what was observed and decided, as JSON Lines that replay can read.

``journal`` is how a service writes down what it consumes and decides, ``questions`` what is asked
in it, ``lines`` says what a line of a recording may be, ``file`` reads and writes them,
``recorder`` follows a bus, ``history`` is what it needs of the time before.
"""
