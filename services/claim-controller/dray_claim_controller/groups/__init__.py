"""PodGroups and Queues: their status, the gates of their pods, and groups that end."""
