"""FragmentationAware: a pod goes where most of what is left stays usable to the pods seen.

shapes          pods and cards as far as the score looks at them
table           what the typical pods can use of a node, as columns of numbers
nodes           the nodes of a node table: free cpu, and the use of each card
workload_model  which pods are typical, and what they count for
node_worth      the worth of one node table's nodes, by the newest model
ample_cpu       what nodes are worth as long as their cpu suffices for whatever they hold
losses          what nodes lose in worth by a pod
score           how pods of one signature rate nodes and cards

``docs/placement.md`` says what the score is and why.
"""
