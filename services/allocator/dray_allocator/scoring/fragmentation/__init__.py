"""FragmentationAware: place a pod where the free capacity stays most usable for typical pods.

shapes          pods and cards in the units of the score
table           the capacity of nodes that typical pods can use, as columns
nodes           the nodes of a node table: free cpu, and the use of each card
workload_model  the typical pods and their weights
node_worth      the worth of nodes: their free capacity, by its use for typical pods
ample_cpu       the worth of nodes with enough cpu for all pods that fit their cards
cost            the worth that a node loses if a pod is placed on it
score           the scores of nodes and cards for pods of one signature

``docs/placement.md`` defines and explains the score.
"""
