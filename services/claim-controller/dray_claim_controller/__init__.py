"""The claim-controller: facts from Kubernetes to the bus, decisions from the bus to Kubernetes.

``observe`` facts; ``domains`` epochs and decision logs; ``execute`` decisions; ``templates``
derived templates; ``garbage`` what is no longer used; ``report`` what people see; ``leading``
the election. ``term`` puts them together, ``app`` is the composition root.
"""
