"""The texts of events and annotations on pods. Pure."""
