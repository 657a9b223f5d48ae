"""A registry of images on this machine, for nodes that reach no other."""
