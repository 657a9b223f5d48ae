"""The wire types, and how a type becomes a subject, headers and bytes.

``base`` is the envelope, ``facts`` what was observed, ``decisions`` the records of the
decision log, ``commands`` wishes with one addressee, ``events`` what happened (no state
depends on them), ``rpc`` questions with an answer.
"""
