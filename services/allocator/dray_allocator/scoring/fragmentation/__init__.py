"""FragmentationAware: a pod goes where most of what is left stays usable to the pods seen.

shapes      pods and cards as far as the score looks at them
table       what the typical pods can use of a node, as columns of numbers
learning    which pods are typical, and what they count for
landscape   one board by what was learned last
ample       what nodes are worth as long as their cpu suffices for whatever they hold
losses      what nodes lose in worth by a pod
score       how pods of one signature rate nodes and cards

``docs/placement.md`` says what the score is and why.
"""
