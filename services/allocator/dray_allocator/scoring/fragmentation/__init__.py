"""FragmentationAware: place a pod where the remaining capacity stays most usable to the pods seen.

shapes          pods and cards as the score sees them
table           the capacity that typical pods can use of a node, as columns
nodes           the nodes of a node table: free cpu, and the use of each card
workload_model  the typical pods and their weights
node_worth      the worth of one node table's nodes, by the newest model
ample_cpu       the worth of nodes whose cpu suffices for everything that fits their cards
cost            the worth that a node loses by a pod
score           the scores of nodes and cards for pods of one signature

``docs/placement.md`` says what the score is and why.
"""
