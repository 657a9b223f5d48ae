"""The claim-controller: facts from Kubernetes to the bus, decisions from the bus to Kubernetes.

``informers`` watches; ``cache`` holds the watched objects; ``facts`` builds facts from them, which
``publication`` publishes; ``logs`` opens and reads decision logs; ``execution`` carries decisions
out; ``pools``, ``templates``, ``owners`` and ``garbage`` reconcile objects; ``report`` writes what
people see; ``leader`` is the election. ``term`` puts them together, ``app`` is the composition
root. Everything named ``decisions`` is pure.
"""
