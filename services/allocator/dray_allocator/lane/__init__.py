"""The structured lane: pods of which the board can't tell everything, decided by `structured`.

asking, asked   claims as structured parameters read them, and the rules that hold for a pod
parts, seen     slices, what one node sees, and who holds it
forms, kinds    what makes nodes alike to a pod
trial           what comes of one node
prospect        what is remembered of the nodes, and their order
choose          the best of what fits, in steps
account, tally, naming, diagnosis, reasons   why nothing does
"""
