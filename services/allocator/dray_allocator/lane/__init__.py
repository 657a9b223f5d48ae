"""The structured lane: pods of which the board can't tell everything, decided by `structured`.

asking   claims as structured parameters read them     seen     what one node sees, and who holds it
trying   the nodes in the placement's order, bounded    choose   the best of what fits
reasons  why nothing does
"""
