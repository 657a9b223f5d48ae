"""The agent's files: checkpoint, publication record and CDI specifications."""
