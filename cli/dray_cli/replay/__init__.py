"""``dray replay``: repeats recorded decisions with the pure code of the services.

``timeline`` puts the lines of a recording in order; ``allocator``, ``webhook`` and ``journals``
decide again; ``other_logs`` finds records that depend on more than one log; ``difference`` and
``answer_difference`` describe the first difference; ``outcome`` sums up; ``run`` does all of this,
and ``verb`` is the command.
"""
