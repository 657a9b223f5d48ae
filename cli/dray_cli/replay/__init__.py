"""``dray replay``: recorded decisions taken again by the pure code of the services.

``timeline`` puts the lines of a recording in order, ``allocator`` decides again, ``difference``
tells where the two part, ``verb`` is the command.
"""
