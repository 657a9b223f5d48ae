"""The claim-controller: facts from Kubernetes to the bus, decisions from the bus to Kubernetes.

``cache`` holds the watched objects; ``facts`` publishes them; ``logs`` opens and reads decision
logs; ``execution`` carries decisions out; ``pools``, ``templates``, ``owners`` and ``garbage``
reconcile objects; ``report`` writes what people see; ``leader`` is the election. ``term`` puts them
together, ``app`` is the composition root.
"""
