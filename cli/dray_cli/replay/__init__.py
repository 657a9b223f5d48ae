"""``dray replay``: recorded decisions, repeated by the pure code of the services.

``timeline`` puts the lines of a recording in order; ``allocator`` and ``webhook`` decide again,
``elsewhere`` knows what can't be decided from one log alone; ``difference`` tells where the two
part, ``outcome`` sums up; ``everything`` is all of it, ``verb`` the command.
"""
