"""The node-agent: what this node has, how it is, and handing it to containers.

* decisions (pure): ``inventory``, ``models``, ``comparing``, ``kubelet.devices``, ``kubelet.cdi``
* doors: ``boards.nvml`` (pynvml), ``kubelet.server`` (grpc); ``disk``, ``record``,
  ``kubelet.checkpoint`` and ``kubelet.cdi_folder`` (files)
* shells: ``agent``, ``publishing``, ``following``, ``kubelet.preparing``, ``kubelet.ledger``
* composition root: ``app``
"""
