"""The pool in columns: where a pod fits, and where best, without looking at every node.

kinds     cards and nodes, told apart only as far as somebody asked
reading   what is told apart: card by card, node by node
source    where the board reads what is so now
columns   arrays that grow; which cards are whose
board     one pool's nodes and cards, brought up to date one at a time, and a log of who changed
ties      who has the same place in the order of ties as somebody else
plan      what pods of one signature need, as numbers per kind
index     one signature's nodes in order of preference; catches up with the board's log
boards    the boards of all pools and their indexes, within bounds

What an index says of a node is a necessary condition: whoever is passed over does not fit. The
node that is chosen is judged exactly, by ``node.predicates`` and ``fit``, before it is given;
``docs/adr/0021-a-board-per-pool.md`` says why this is enough.
"""
