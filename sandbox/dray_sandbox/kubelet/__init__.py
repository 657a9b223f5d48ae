"""A kubelet's stand-in: no containers, but all that the API and the drivers see of a kubelet.

* decisions (pure): ``admission``, ``claims``, ``statuses``, ``cdi.resolve``
* doors: ``plugins`` (grpc and the registry folder), ``cdi`` (the CDI folder)
* shells: ``node`` (Node object, lease), ``pod_object`` and ``worker`` (one pod), ``kubelet`` (one
  node)
* composition root: ``__main__``

Where it had the choice it does as kubelet 1.36 does, also where that is unpleasant: it rejects
pods beyond the node's cpu, memory or ports for good, and wipes the slices of a driver that
stays away.
"""
