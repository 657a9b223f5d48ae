"""Structured parameters: which devices claims get on one node, as kube-scheduler decides it.

allocate   the way in              rules        what a version with its gates decides differently
pools      slices → pools          nodes        whether a node is reached
plan       requests, checked       selectors    CEL, once per request and device
search     depth first             taking       all that one more device changes, and its undoing
capacity   request policies        ranges       with minimum and step; ``amounts`` as Go holds them
counters   shared by devices       constraints  attributes that must match or differ
usage      what claims hold        results      the answer in the API's terms
budget     how long it may take    links        how devices are connected
ordered_search                     the search in another order, and of connected devices

Pure: the same question has the same answer, and nothing is asked but what is given.
"""
