"""How each kind of node becomes a closure: one module per kind, all called by the compiler."""
