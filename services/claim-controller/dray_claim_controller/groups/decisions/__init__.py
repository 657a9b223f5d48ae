"""The state of PodGroups and queues, and what follows from it. Pure."""
