"""The ``dray`` command: one module per verb. The top layer; it may import everything."""
