"""A stand-in kubelet: no containers, but the same requests to the API and to drivers.

* decisions (pure): ``admission``, ``claims``, ``device_health``, ``statuses``, ``cdi.resolve``
* adapters: ``plugins`` (grpc and the registry folder), ``cdi`` (the CDI folder)
* control loops: ``node`` (Node object, lease), ``pod_object`` and ``worker`` (one pod), ``kubelet``
  (one node)
* composition root: ``__main__``

It follows kubelet 1.36. It rejects pods that exceed the node's cpu, memory or ports, for good. It
deletes the slices of a driver that is disconnected for too long. If a pod's claims could not be
prepared, it retries only after a minute or more, unless the pod's object changes.
"""
