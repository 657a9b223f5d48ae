"""FragmentationAware: a pod goes where most of what is left stays usable to the pods seen.

shapes      pods and cards as far as the score looks at them
table       what the typical pods can use of a node, as columns of numbers
learning    which pods are typical, and what they count for
landscape   what each node of a board is worth by what was learned last
score       how pods of one signature rate nodes and cards

``docs/placement.md`` says what the score is and why.
"""
