"""An image registry on this machine, for nodes that can't reach another one."""
