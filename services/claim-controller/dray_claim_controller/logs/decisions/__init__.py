"""When a decision log begins an epoch, and how much of it is kept. Pure."""
