"""``dray simulate``: tries placement on a recorded cluster, without a real one.

trace      a cluster's nodes and pods, from files
protocol   the order in which pods arrive, and what is measured
cluster    nodes as columns, for the policies of other schedulers
placement_rules  random, bestfit, dotprod, gpu-packing, gpu-clustering, as published
fgd        fragmentation gradient descent, as published
dray_policy  dray's policies: the allocator's ``choose`` over its node table
runs       every policy, list of pods and seed, in one or more processes
verb       the command line
"""
