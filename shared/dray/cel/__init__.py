"""The language of device selectors: CEL in the environment of Dynamic Resource Allocation.

environment  which server's language, and for what   syntax    text → tree, bounded
check        types and overloads, as Kubernetes does  estimate  the cost at worst
admission    what an API server says to a selector   evaluate  one device at a time, exactly
unparse      tree → text                             device    what a selector sees of a device

Behind ``syntax``: ``lexer``, ``cursor``, ``operands``, ``literals``, ``macros``, ``depth``.
Behind ``check``: ``checker`` with its ``findings``, ``types``, ``signatures`` over
``declarations``, ``expansion`` (of macros), ``messages``, ``validation``, ``formats`` and
``constants``. Behind ``estimate``: ``estimation``. Behind ``evaluate``: ``closures`` with their
``rules``, ``operators``, ``functions`` and ``libraries``, ``costs``, ``loops`` (macros),
``patterns`` (the adapter to RE2), ``work`` (limits).
"""
