"""The kubelet's side of the node: registration, prepare and unprepare, CDI, checkpoint."""
