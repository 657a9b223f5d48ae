"""The agent's side towards the kubelet: registration, prepare and unprepare, CDI, checkpoint."""
