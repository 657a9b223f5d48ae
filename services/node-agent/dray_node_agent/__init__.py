"""The node-agent: what this node has, how it is, and handing it to containers.

* decisions (pure): ``inventory``, ``models``, ``kubelet.devices``, ``kubelet.cdi``
* doors: ``boards.nvml`` (pynvml), ``kubelet.server`` (grpc), ``kubelet.checkpoint`` and
  ``record`` (the disk)
* shells: ``publishing``, ``following``, ``kubelet.preparing``
* composition root: ``app``
"""
