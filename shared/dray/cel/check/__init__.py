"""The static check: the type of every node, the overload of every call, and refusals."""
